"""The Spark suite, on unmodified RocketMQ."""

from __future__ import annotations

import spark.test_batch_read as batch_read
import spark.test_committed_offsets as committed_offsets
import spark.test_data_loss as data_loss
import spark.test_lag as lag
import spark.test_push_down as push_down
import spark.test_sql as sql
import spark.test_stream_read as stream_read
import spark.test_typed_bodies as typed_bodies
from real.adoption import adopt

_OURS = "the gRPC service is the bundled broker's"
_NO_BROKER = "asks nothing of a broker"

globals().update(
    adopt(
        batch_read,
        without={
            "test_grpc_gives_the_same_rows": _OURS,
            "test_an_unreachable_address_is_reported_in_time": _NO_BROKER,
        },
        short=(
            "test_the_format_is_found_without_registration_and_rows_are_exact",
            "test_starts_and_ends_by_time",
            "test_tags_filter",
        ),
    )
)
globals().update(
    adopt(
        stream_read,
        without={
            "test_grpc_streams_the_same": _OURS,
            "test_a_checkpoint_serves_the_other_transport": _OURS,
            "test_stop_is_prompt_while_the_broker_is_unavailable_and_a_query_survives_its_return": (
                "starts a broker of its own; test_outages does it with a real one"
            ),
            "test_a_checkpoint_of_another_version_is_refused_by_name": _NO_BROKER,
        },
        short=(
            "test_available_now_reads_all_there_is_in_several_batches",
            "test_new_queues_and_new_topics_are_found_while_running",
        ),
    )
)
globals().update(
    adopt(
        data_loss,
        without={
            "test_expired_messages": "ages a store of ours; test_retention does it with a real one"
        },
        short=("test_a_topic_recreated_and_refilled_beyond_the_checkpoint",),
    )
)
globals().update(
    adopt(
        committed_offsets,
        without={},
        short=("test_committed_offsets_are_exact_after_each_batch_and_at_the_end",),
    )
)
globals().update(adopt(lag, without={}))
globals().update(adopt(push_down, without={"test_spark_says_what_to_switch_on": _NO_BROKER}))
globals().update(adopt(sql, without={}))
globals().update(adopt(typed_bodies, without={}))
name, outbox = sql.name, sql.outbox
switched_on, filled = push_down.switched_on, push_down.filled
