"""The fields of RocketMQ's messages as its gRPC client in Python defines them, as JSON."""

import json

from google.protobuf import descriptor_pb2
from rocketmq.grpc_protocol import definition_pb2, service_pb2

found = {}
for module in (definition_pb2, service_pb2):
    file = descriptor_pb2.FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(file)
    for message in file.message_type:
        found[message.name] = {
            field.name: [field.number, field.type, field.label] for field in message.field
        }
print(json.dumps(found))
