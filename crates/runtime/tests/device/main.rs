//! A device that many threads share, in both modes of the CPU, and as one that tells failures late. The files that name no
//! mode are also tests of the CUDA backend, which includes them.
//!
//! The lines of BEHAVIOURS D, and the tests that hold them (those that are not here are in `capture_state.rs`, which is the
//! state machine's alone):
//!
//! | D | tests |
//! | --- | --- |
//! | 1 | `d01_every_call_in_every_state_moves_or_errs_and_an_error_leaves_the_state`, `d01_a_window_that_fails_to_open_is_aborted_and_end_leaves_capture_before_sealing`, `d01_a_window_that_fails_to_open_is_aborted_and_the_stream_serves`, `d01_a_seal_that_fails_leaves_a_stream_that_serves`, `every_step_fails_once_in_every_mode` |
//! | 2 | `d02_the_window_carries_its_owner_from_prepare_on_and_end_reports_it` |
//! | 3 | `d03_only_the_owner_seals_and_a_late_owner_abandons_the_neighbours_window`, `d03_a_neighbours_end_discards_and_a_late_owner_finds_nothing`, `d03_a_neighbour_of_a_branch_abandons_the_whole_window` |
//! | 4 | `d04_the_abandonment_error_is_several_and_names_owner_caller_and_then_the_doom`, `d04_an_abandoned_capture_tells_who_owned_it_and_what_had_doomed_it` |
//! | 5 | `d05_abort_returns_from_both_phases_and_the_stream_can_be_prepared_again`, `d05_abort_closes_either_phase_and_the_stream_is_prepared_again` |
//! | 6 | `d06_the_record_counts_every_stream_and_one_owner_on_two`, `d06_the_record_is_true_after_any_calls_on_any_streams`, `d06_one_owner_on_two_pooled_streams_counts_on_both_until_the_end`, `d06_nothing_is_prepared_where_one_of_the_streams_is_busy` |
//! | 7 | `d07_warm_up_runs_for_real_and_the_window_is_served_from_what_is_held`, `d07_what_is_dropped_in_a_window_is_handed_out_in_neither_phase`, `d07_an_allocation_that_no_page_serves_dooms_and_d17_reports_it` |
//! | 8 | `d08_the_owners_read_and_profile_are_refused_and_the_capture_lives`, `d08_a_write_in_the_window_dooms_and_the_first_cause_is_named`, `d08_destructors_in_the_window_wait_for_its_end` |
//! | 9 | `d09_a_neighbour_on_the_slot_is_refused_and_told_and_taints_its_destinations`, `d09_a_neighbours_failure_does_not_doom`, `d09_a_failure_in_the_window_belongs_to_the_capture` |
//! | 10 | `d10_what_a_doomed_capture_would_have_written_is_tainted_until_rewritten`, `d10_what_a_failed_operation_would_have_written_is_tainted` |
//! | 11 | `d11_pages_of_a_sealed_graph_are_guarded_until_it_is_gone`, `d11_nothing_is_released_while_a_stream_records`, `d11_what_a_recording_may_use_is_released_only_while_none_records`, `d11_a_graph_destroyed_while_a_replay_is_enqueued_lives_until_it_is_done`, `a_buffer_that_outlives_its_window_fails_the_seal_where_another_graph_would_overwrite_it` |
//! | 12 | `d12_errors_are_typed_and_name_both_streams` |
//! | 13 | `d13_guards_end_the_window_on_error_and_panic`, `d13_the_window_guard_ends_it_on_error_and_panic` |
//! | 14 | `d14_begin_and_abort_check_the_caller`, `d14_a_neighbour_can_neither_begin_nor_abort`, `d14_a_stream_of_the_window_acts_as_its_owner` |
//! | 15 | `d15_a_neighbours_launch_is_never_recorded`, `stress` |
//! | 16 | `d16_replay_refuses_tainted_inputs` |
//! | 17 | `d07_an_allocation_that_no_page_serves_dooms_and_d17_reports_it` |

mod adopt;
mod behaviours;
mod branches;
mod fault_points;
mod faults;
mod hosts;
mod keeping;
mod kinds;
mod modes;
mod random_device;
mod raw;
mod refusals;
mod shared_device;
mod sharing;
mod side_by_side;
mod submission;
mod taint;
mod traced;
mod waiting;
mod warm_up;
mod windows;
mod work;
