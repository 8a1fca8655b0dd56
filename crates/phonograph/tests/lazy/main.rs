//! Lazy operations, futures and captured graphs: on the CPU, or where `PHONOGRAPH_DEVICE` says: `cpu`, `cuda`.
//!
//! The lines of BEHAVIOURS E, and the tests that hold them. Those in `refused/` are programs that must not compile.
//!
//! | E | tests |
//! | --- | --- |
//! | 1 | `capture_consumes_its_op_once_and_executes_nothing` |
//! | 2 | `take_output_gives_the_output_once_with_metadata_at_once_and_data_after_a_launch`, `record_gives_the_operations_output_at_once` |
//! | 3 | `update_enqueues_without_waiting_and_precedes_the_next_launch_on_any_stream`, `update_does_not_wait_for_what_its_stream_was_given_before`, `refused/update_that_allocates`, `refused/update_with_an_output` |
//! | 4 | `launch_is_an_operation_like_others_on_whichever_stream`, `a_launch_outlives_its_graph_and_the_last_owner_destroys_once`, `graphs_and_launches_are_send` |
//! | 5 | `what_one_record_writes_the_next_may_read`, `refused/scope_leaves_its_thread`, `refused/scope_is_kept`, `refused/scope_allocates`, `refused/scope_takes_a_boxed_operation` |
//! | 6 | `inside_a_scope_everything_that_executes_is_refused_and_the_capture_goes_on`, `inside_a_captured_closure_it_is_the_same`, `only_then_unchecked_executes_eagerly_inside`, `other_threads_go_on` |
//! | 7 | `an_error_inside_reaches_the_caller_unchanged_and_leaves_the_stream_usable`, `a_panic_inside_reaches_the_caller_unchanged_and_leaves_the_stream_usable`, `a_recording_error_wins_over_an_end_error`, `a_failed_instantiation_destroys_everything_made`; a failed upload: `a_failed_step_leaves_nothing` of the runtime |
//! | 8 | `ten_launches_are_ten_executions`, `an_empty_graph_launches`, `launches_on_several_streams_and_threads_all_happen`, `a_policy_without_a_stream_makes_the_future_fail` |
//! | 9 | `a_module_gives_the_eager_result`, `gradients_are_those_of_finite_differences`, `a_captured_step_trains_it` |
//! | 10 | the documentation of `Scope` |
//! | 11 | `what_a_capture_allocates_is_the_graphs_and_relaunches`, `an_upload_in_a_capture_owns_its_contents`, `refused/scope_allocates` |
//! | 12 | `a_graph_owns_the_memory_that_it_touches`; the cost: the bench `tracked`, and `agree_with_looking_at_all_work` of the runtime |
//! | 13 | `update_enqueues_without_waiting_and_precedes_the_next_launch_on_any_stream` |
//! | 14 | `zip_arms_record_as_parallel_branches_and_replay_as_they_would_execute`, `random_programs_replay_as_they_execute` |
//! | 15 | `a_conflict_across_streams_becomes_a_wait` |
//! | 16 | all of these |
//! | 17 | `host_functions_are_owned_by_the_graph_and_run_on_every_replay_in_order` |
//!
//! What is awaited: `futures.rs`, and every interleaving of wakers and slots in `completion_model.rs`. Aliasing: `refused/an_operand_aliases_another`,
//! `refused/arms_write_the_same`, `refused/a_shared_tensor_is_written`, `refused/a_view_outlives_its_tensor`.

mod audits;
mod behaviours;
mod caches;
mod capture;
mod combinators;
mod common;
mod failures;
mod futures;
mod lifetimes;
mod modules;
mod scopes;
mod tensors;
