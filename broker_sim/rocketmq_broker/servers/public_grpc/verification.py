"""What tools ask of consumers, for those of the public service: as commands, and their answers."""

from __future__ import annotations

from typing import Any, Final

from rocketmq_wire.codes import PublicCode
from rocketmq_wire.grpc.public.messages import Delivery, incoming_of
from rocketmq_wire.records.record import decode_record
from rocketmq_wire.remoting.codec import encode_reply
from rocketmq_wire.requests.contract import Reply, Request
from rocketmq_wire.requests.members import (
    ConsumeDirectly,
    ConsumeDirectlyReply,
    ConsumeResult,
    GetRunningInfo,
    RelayedReply,
    RunningInfoReply,
)
from rocketmq_wire.stubs import public

_RESULTS: Final = {
    PublicCode.OK: ConsumeResult.SUCCESS,
    PublicCode.FAILED_TO_CONSUME_MESSAGE: ConsumeResult.LATER,
    PublicCode.MESSAGE_CORRUPTED: ConsumeResult.RETURN_NULL,
}


def question_of(request: Request[Reply], nonce: str) -> Any | None:
    """The command that asks it; None for what these clients cannot be asked."""
    command = public.message_class("TelemetryCommand")()
    if isinstance(request, ConsumeDirectly):
        stored, _ = decode_record(request.record, check_crc=False)
        verify = command.verify_message_command
        verify.nonce = nonce
        verify.message.CopyFrom(incoming_of(stored, Delivery(stored.topic)))
        return command
    if isinstance(request, GetRunningInfo):
        command.print_thread_stack_trace_command.nonce = nonce
        return command
    return None


def answer_of(request: Request[Reply], command: Any) -> RelayedReply | None:
    """The answer as members of the TCP protocol give it; None when it answers something else."""
    reply: Reply
    if isinstance(request, ConsumeDirectly) and command.HasField("verify_message_result"):
        result = _RESULTS.get(command.status.code, ConsumeResult.EXCEPTION)
        reply = ConsumeDirectlyReply(result, remark=command.status.message)
    elif isinstance(request, GetRunningInfo) and command.HasField("thread_stack_trace"):
        trace = command.thread_stack_trace.thread_stack_trace
        reply = RunningInfoReply({"THREAD_STACK_TRACE": trace}, {}, {}, ())
    else:
        return None
    encoded = encode_reply(request, reply)
    return RelayedReply(
        encoded.code, encoded.remark, encoded.ext_fields, b"".join(map(bytes, encoded.body))
    )
