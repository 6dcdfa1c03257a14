# ruff: noqa: E501
"""For each error class of docs/errors.md: the test that provokes and expects it, by file."""

from __future__ import annotations

EXPECTED_BY = {
    "tests/broker/engine/messages/test_delays_and_retries.py": {
        "GROUP.NOT_FOUND": "test_an_unknown_group_or_offset_is_refused",
    },
    "tests/broker/storage/adoption/test_adopt.py": {
        "STORAGE": "test_topics_in_rocksdb_are_refused_with_the_remedy",
    },
    "tests/broker/storage/disk/test_config_damage.py": {
        "STORAGE.CONFIG": "test_a_damaged_file_is_named_with_the_remedy",
    },
    "tests/broker/storage/recovery/test_damage.py": {
        "STORAGE.DAMAGED": "test_a_flipped_field_of_an_acknowledged_record_refuses_to_start",
    },
    "tests/broker/storage/recovery/test_directory.py": {
        "STORAGE.DIRECTORY": "test_a_directory_of_other_files_is_refused_by_name",
    },
    "tests/broker/storage/test_store.py": {
        "STORAGE.LOCKED": "test_a_second_broker_cannot_open_the_same_directory",
    },
    "tests/cli/test_lag.py": {
        "BROKER.CODE_n": "test_if_no_broker_answers_the_failure_is_raised",
    },
    "tests/client/consumer/common/test_io_thread.py": {
        "CONNECTION.TOO_MANY_REQUESTS": "test_a_request_above_the_limit_is_refused_at_once",
    },
    "tests/client/consumer/test_broadcasting_push.py": {
        "GROUP.PROGRESS_FILE": "test_the_start_raises_and_names_a_torn_offset_file",
    },
    "tests/client/consumer/test_push.py": {
        "GROUP.STATE": "test_a_consumer_whose_start_failed_cannot_be_used",
    },
    "tests/client/offsets/test_end_offset_watcher.py": {
        "WATCH.DIED": "test_every_call_raises_after_the_threads_death",
    },
    "tests/client/producer/test_lost_answers.py": {
        "SEND.OUTCOME_UNKNOWN": "test_a_send_whose_answer_is_lost_may_be_stored",
        "TRANSACTION.OUTCOME_UNKNOWN": "test_a_transaction_without_an_answer_to_its_end_may_be_ended",
    },
    "tests/client/test_key_offsets.py": {
        "LOOKUP.INCOMPLETE": "test_a_second_with_more_than_a_page_hides_what_is_older",
    },
    "tests/client/transport/grpc/test_processes.py": {
        "CONNECTION.FORKED": "test_a_child_forked_before_the_first_use_connects_and_one_forked_later_is_refused",
    },
    "tests/client/transport/grpc/test_sending.py": {
        "CONNECTION.LOST": "test_batches_in_flight_when_the_broker_dies_have_an_unknown_outcome",
    },
    "tests/client/transport/grpc/test_transport.py": {
        "UNSUPPORTED": "test_a_grpc_server_without_the_service_is_reported",
    },
    "tests/spark_source/test_light_install.py": {
        "INSTALL.MISSING": "test_endpoints_without_grpcio_say_what_to_install",
    },
    "tests/client/transport/tcp/test_download.py": {
        "UNSUPPORTED.SQL92_WORDS": "test_words_that_a_broker_is_too_old_for_are_refused_before_any_row",
    },
    "tests/client/transport/tcp/test_transport.py": {
        "CONNECTION.REFUSED": "test_an_unreachable_name_server_says_where_it_was_looked_for",
        "CONNECTION.TIMEOUT": "test_a_request_without_an_answer_ends_at_its_deadline",
    },
    "tests/client/transport/tls/test_wrong_ports.py": {
        "CONNECTION.WRONG_PORT": "test_the_port_of_grpc_is_no_name_server",
    },
    "tests/contract/test_sql_contract.py": {
        "UNSUPPORTED.SQL92": "test_a_broker_that_does_not_filter_by_properties_says_so",
    },
    "tests/security/test_access.py": {
        "AUTH.MISSING_KEY": "test_each_wrong_signature_has_an_error_of_its_own",
        "AUTH.WRONG_KEY": "test_each_wrong_signature_has_an_error_of_its_own",
        "AUTH.NO_PERMISSION": "test_rights_are_those_of_topic_and_group",
    },
    "tests/security/test_acl_signing.py": {
        "AUTH": "test_refusals_of_every_version_are_one_error_that_says_what_to_do",
    },
    "tests/security/test_command_line.py": {
        "TLS.REQUIRED": "test_a_command_reaches_an_encrypted_broker_and_says_why_it_does_not",
    },
    "tests/security/test_tls_connections.py": {
        "TLS.PLAINTEXT_SERVER": "test_tls_against_plaintext_is_advised_to_leave_it",
        "TLS.CERTIFICATE_EXPIRED": "test_an_expired_certificate_is_refused",
        "TLS.CERTIFICATE_UNKNOWN": "test_a_strangers_certificate_is_refused_unless_anything_goes",
        "TLS.CLIENT_CERTIFICATE": "test_a_server_that_wants_a_certificate_takes_a_good_one_only",
        "TLS.FILE": "test_files_that_are_not_there_are_named",
        "TLS.HANDSHAKE": "test_other_tls_failures_carry_the_librarys_words",
    },
    "tests/spark/test_batch_read.py": {
        "OPTION.SCHEMA": "test_a_wrong_schema_is_refused_by_name",
    },
    "tests/spark/test_security.py": {
        "TLS.CERTIFICATE_NAME": "test_a_wrong_key_or_certificate_fails_at_once_and_says_what_to_do",
    },
    "tests/spark/test_sink.py": {
        "UNSUPPORTED.SAVE_MODE": "test_modes_that_make_no_sense_say_what_to_write",
        "UNSUPPORTED.OUTPUT_MODE": "test_modes_that_make_no_sense_say_what_to_write",
    },
    "tests/spark/test_sink_send_back.py": {
        "SEND.BACK_REFUSED": "test_a_message_that_is_not_there_fails_the_write",
    },
    "tests/spark_source/consumer_group/test_commit.py": {
        "GROUP.FOREIGN_COMMIT": "test_another_committer_is_reported_once_and_left_alone",
    },
    "tests/spark_source/options/test_parse.py": {
        "OPTION.UNKNOWN": "test_an_unknown_key_is_refused_with_the_nearest_known_one",
        "OPTION.MISSING": "test_a_missing_option_is_named",
        "OPTION.INVALID": "test_a_wrong_value_is_refused_by_name_with_what_was_given",
        "OPTION.CONFLICT": "test_what_does_not_go_together_is_refused",
        "OPTION.NOT_HERE": "test_an_option_that_belongs_elsewhere_is_refused",
        "UNSUPPORTED.OPTION": "test_what_is_not_there_yet_is_refused_and_never_ignored",
    },
    "tests/spark_source/planning/test_checkpoint.py": {
        "OPTION.CHECKPOINT": "test_what_this_source_did_not_write_is_refused",
        "UNSUPPORTED.CHECKPOINT_VERSION": "test_an_unknown_version_is_refused_by_name",
    },
    "tests/spark_source/planning/test_filters.py": {
        "UNSUPPORTED.PUSH_DOWN": "test_a_spark_that_pushes_no_filters_is_refused",
        "UNSUPPORTED.PUSH_DOWN_REUSED": "test_a_plan_made_before_its_query_is_refused",
    },
    "tests/spark_source/planning/test_selection.py": {
        "OPTION.UNKNOWN_QUEUE": "test_numbers_name_every_queue_and_no_other",
        "OPTION.QUEUE_MISSING": "test_numbers_name_every_queue_and_no_other",
    },
    "tests/spark_source/read/test_cluster_scan.py": {
        "CONNECTION.UNREACHABLE": "test_planning_gives_up_after_the_connect_time_out_and_tells_what_was_tried",
    },
    "tests/spark_source/read/test_task.py": {
        "DATA_LOSS.TRUNCATED": "test_a_planned_queue_that_ends_earlier_when_read_is_a_loss",
        "DATA_LOSS.TOPIC_DELETED": "test_a_planned_queue_or_topic_that_is_gone_when_read_is_a_loss",
        "DATA_LOSS.QUEUE_REMOVED": "test_a_planned_queue_or_topic_that_is_gone_when_read_is_a_loss",
        "DATA_LOSS.HOLE": "test_an_offset_that_does_not_come_is_a_loss",
        "CORRUPT_MESSAGE": "test_a_damaged_message_fails_or_is_skipped_or_shown",
    },
    "tests/spark_source/read/test_typed_bodies.py": {
        "BAD_BODY": "test_failfast_names_the_first_bad_message_and_why",
    },
    "tests/spark_source/sink/encoding/test_batches.py": {
        "SINK.SCHEMA": "test_a_schema_is_refused_by_name",
        "SINK.ROW": "test_a_row_that_cannot_be_a_message_is_named",
        "SINK.NOTHING_WRITTEN": "test_a_batch_that_no_task_wrote_is_no_batch",
    },
    "tests/spark_source/sink/test_task.py": {
        "UNSUPPORTED.SPARK_VERSION": "test_a_spark_without_arrow_writers_for_streams_names_what_to_use",
        "SEND.TOO_LARGE": "test_a_row_larger_than_the_broker_takes_is_refused_at_once",
    },
    "tests/spark_source/sink/transactional/test_commit.py": {
        "SINK.WRITE_ID": "test_a_named_write_is_distinguished_from_another_of_its_name",
        "SINK.REPLAY": "test_a_batch_of_a_stream_that_has_other_rows_is_not_lost_without_a_word",
        "SINK.DECISION": "test_a_decision_of_another_version_is_refused",
    },
    "tests/spark_source/sink/transactional/test_decision_log.py": {
        "SINK.DECISIONS_AWAY": "test_what_one_broker_alone_may_know_is_not_denied_by_the_other",
    },
    "tests/spark_source/sink/transactional/test_recovery.py": {
        "SINK.UNFINISHED": "test_half_messages_that_the_broker_gave_up_are_reported",
    },
    "tests/spark_source/stream/pull/test_driver.py": {
        "DISCOVERY.DIED": "test_an_unexpected_end_of_the_discovery_fails_the_query",
        "TOPIC_NOT_FOUND": "test_a_topic_that_does_not_exist_is_reported_at_the_start",
    },
    "tests/spark_source/stream/pull/test_driver_groups.py": {
        "GROUP.IN_USE": "test_a_group_with_live_members_is_refused",
    },
    "tests/spark_source/stream/pull/test_driver_losses.py": {
        "DATA_LOSS.OFFSET_EXPIRED": "test_expiry_is_found_at_a_restart",
        "DATA_LOSS.TOPIC_RECREATED": "test_a_recreated_and_refilled_topic_is_found_at_a_restart",
    },
    "tests/spark_source/stream/pull/test_driver_starts.py": {
        "OPTION.NO_MESSAGE_AT_TIME": "test_starting_numbers_words_and_times",
        "OPTION.NO_PROGRESS": "test_starting_at_committed_offsets_with_a_fallback",
    },
    "tests/wire/remoting/test_frames.py": {
        "CONNECTION.FRAME_TOO_LARGE": "test_a_frame_of_just_the_limit_is_taken_and_one_byte_more_is_refused",
    },
}
