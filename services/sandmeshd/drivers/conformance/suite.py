"""All requirements, in the order in which they make sense to read."""

from __future__ import annotations

from sandmeshd.drivers.conformance import isolation, lifecycle, refusals, watching
from sandmeshd.drivers.conformance.subject import Requirement

REQUIREMENTS: tuple[Requirement, ...] = (
    lifecycle.the_driver_says_what_it_is,
    lifecycle.a_prepared_template_is_prepared_again_at_once,
    lifecycle.a_created_sandbox_runs_commands,
    lifecycle.user_code_sees_the_stated_environment_variables,
    lifecycle.a_repeated_create_gives_the_same_sandbox,
    lifecycle.creates_of_one_id_at_once_give_one_sandbox,
    lifecycle.the_same_id_with_another_spec_is_refused,
    lifecycle.several_sandboxes_are_created_at_once,
    lifecycle.a_sandbox_is_inspected_and_listed_as_it_was_made,
    lifecycle.a_deleted_sandbox_leaves_nothing,
    lifecycle.deleting_twice_or_what_never_was_is_fine,
    lifecycle.deletes_of_one_id_at_once_all_succeed,
    lifecycle.a_cancelled_create_leaves_nothing,
    lifecycle.sandboxes_outlive_their_driver_and_are_adopted,
    lifecycle.a_new_token_shuts_out_lower_ones,
    lifecycle.a_token_for_a_sandbox_that_ended_is_refused,
    lifecycle.logs_are_given_while_the_sandbox_is_there,
    refusals.an_unknown_template_is_refused_with_those_there_are,
    refusals.a_create_never_builds_a_template,
    refusals.limits_that_cannot_be_enforced_are_refused_by_name,
    refusals.limits_that_are_reported_are_accepted,
    refusals.networks_that_cannot_be_granted_are_refused,
    refusals.ports_are_refused_where_sandboxes_have_none,
    refusals.pause_and_snapshot_are_refused_where_they_are_missing,
    refusals.an_id_that_is_a_path_is_refused,
    refusals.what_is_not_there_is_not_found,
    watching.a_watch_begins_with_every_sandbox,
    watching.a_watch_tells_of_a_sandbox_that_was_killed,
    watching.a_watch_tells_of_creates_and_deletes,
    isolation.no_process_has_host_uid_0,
    isolation.user_code_has_no_privileges,
    isolation.user_code_writes_only_where_it_may,
    isolation.user_code_cannot_make_dangerous_system_calls,
    isolation.the_network_is_loopback_only,
    isolation.the_host_is_out_of_sight,
    isolation.user_code_cannot_touch_the_agent,
    isolation.neighbours_do_not_see_one_another,
)
