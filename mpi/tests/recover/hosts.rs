//! Several hosts: a rank is killed, and a host with all its processes.

use super::job::{Job, Program, RANKS};
use super::namespaces::Hosts;
use crate::ulfm::outlives_failures;

/// Returns hosts; `None`, with the reason on standard error, if they can't be made, or if the MPI doesn't survive
/// failures.
#[expect(clippy::print_stderr)]
fn hosts(count: usize) -> Option<Hosts> {
    if !outlives_failures() {
        return None;
    }
    let made = Hosts::make(count);
    made.inspect_err(|reason| eprintln!("no hosts can be made here, so ranks were killed on one host only: {reason}"))
        .ok()
}

#[test]
fn a_killed_rank_is_replaced_on_its_host_where_its_log_is() {
    let Some(hosts) = hosts(2) else { return };
    // The first spare is on the other host.
    let wrapper = hosts.wrapper(&[0, 0, 1, 1, 0, 1]);
    let mut running = Job::new(6).with_options(&hosts.options()).with_wrapper(wrapper).start();
    running.wait_for_ranks();
    running.wait_for_step(Program::Rod.steps().1);
    running.kill(2);
    running.wait_for_ranks();
    assert!(hosts.runs_on(running.process(2), 1));
    assert_eq!(running.finish(), RANKS + 1);
}

/// Kills a host with two ranks, expecting their replacements on `spare`.
fn kill_host(count: usize, places: &[usize], killed: usize, spare: usize) {
    let Some(hosts) = hosts(count) else { return };
    let job = Job::new(places.len()).with_options(&hosts.options()).with_wrapper(hosts.wrapper(places));
    let mut running = job.with_setting("node-local").start();
    running.wait_for_ranks();
    let ranks: Vec<usize> = (0..RANKS).filter(|rank| places[*rank] == killed).collect();
    running.wait_for_step(3 * Program::Rod.steps().1);
    let processes = hosts.kill_host(killed);
    assert!(processes.len() >= ranks.len(), "{processes:?}");
    running.handle_killed(&processes);
    running.wait_for_ranks();
    for rank in &ranks {
        assert!(hosts.runs_on(running.process(*rank), spare), "rank {rank}");
    }
    assert_eq!(running.finish(), RANKS + ranks.len());
}

#[test]
fn a_killed_host_is_replaced_by_spares_on_the_other_one() {
    kill_host(2, &[0, 0, 1, 1, 0, 0, 1], 1, 0);
}

#[test]
fn a_killed_host_is_replaced_by_a_spare_host() {
    kill_host(4, &[0, 0, 1, 2, 3, 3], 0, 3);
}
