"""Options -> the client's settings to connect and to download."""

from __future__ import annotations

from pyspark_rocketmq.options.values import ConnectionOptions, ReadOptions
from rocketmq_client.download.contract import ReadLimits, ReadSpec
from rocketmq_client.loss import LossPolicy
from rocketmq_client.settings import ConnectionSettings, TlsSettings
from rocketmq_wire.signing import Credentials

_MIB = 1024 * 1024


def connection_settings(options: ConnectionOptions) -> ConnectionSettings:
    credentials = tls = None
    if options.access_key is not None and options.secret_key is not None:
        credentials = Credentials(options.access_key, options.secret_key, options.security_token)
    if options.tls:
        tls = TlsSettings(
            options.tls_ca_file,
            options.tls_cert_file,
            options.tls_key_file,
            options.tls_server_name,
            options.tls_verify,
        )
    return ConnectionSettings(
        name_servers=options.name_server,
        endpoints=options.endpoints,
        connect_timeout_ms=options.connect_timeout_ms,
        request_timeout_ms=options.request_timeout_ms,
        retry_delay_ms=options.retry_delay_ms,
        retry_delay_ms_max=max(options.retry_delay_ms, options.retry_max_delay_ms),
        outage_ms=max(1, options.retry_outage_ms),
        address_map=dict(options.address_map),
        credentials=credentials,
        tls=tls,
    )


def read_spec(options: ReadOptions) -> ReadSpec:
    return ReadSpec(
        group=options.pull_group,
        subscription=options.subscription,
        limits=ReadLimits(
            messages_max=options.pull.pull_threshold_for_queue,
            bytes_max=options.pull.pull_threshold_size_for_queue * _MIB,
            span_max=options.pull.consume_max_span,
            count_per_pull=options.pull.pull_batch_size,
            pulls_in_flight=options.pull.pulls_in_flight,
            pull_timeout_ms=options.pull.pull_timeout_ms,
            outage_ms=options.connection.retry_outage_ms,
        ),
        loss_policy=LossPolicy.RAISE if options.fail_on_data_loss else LossPolicy.SKIP,
    )
