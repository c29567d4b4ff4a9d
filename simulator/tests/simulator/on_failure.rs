//! Checkpoint-on-Failure: right on every schedule, and each planted mistake is found.

use counterfoil_campaign::scaled;
use counterfoil_canaries::{Canary, rules};
use counterfoil_protocols::api::Rule;
use counterfoil_protocols::on_failure::{RULE, SHARED_MEMORY_RULE};
use counterfoil_simulator::generations::{Config, Coverage, campaign, run};

#[test]
fn jobs_that_are_started_again_end_right() {
    let runs = scaled(20_000);
    let summary = campaign(&RULE, &Config::default(), 0..runs);
    assert_eq!(summary.failed, 0, "{:#?}", summary.violations);
    let Coverage { kills, restarts, loaded_again, begun_anew, lost_two, withheld, refused, right, .. } =
        summary.coverage;
    assert_eq!(right + refused, runs);
    assert!(kills > runs && restarts > runs / 2 && right > runs / 2, "{:?}", summary.coverage);
    let least = runs / 200;
    assert!(
        [loaded_again, begun_anew, lost_two, withheld].iter().all(|count| *count > least),
        "{:?}",
        summary.coverage
    );
}

#[test]
fn jobs_whose_states_are_in_memory_end_right() {
    let runs = scaled(20_000);
    let summary = campaign(&SHARED_MEMORY_RULE, &Config::default(), 0..runs);
    assert_eq!(summary.failed, 0, "{:#?}", summary.violations);
    let Coverage { kills, restarts, begun_anew, lost_one, lost_two, refused, right, .. } = summary.coverage;
    assert_eq!(right + refused, runs);
    assert!(kills > runs && restarts > runs / 2 && right > runs / 2, "{:?}", summary.coverage);
    let least = runs / 200;
    assert!(begun_anew.min(lost_one) > least && lost_two > least / 10, "{:?}", summary.coverage);
}

#[test]
fn each_mistake_is_found() {
    for (name, least) in [(RULE.name, 6), (SHARED_MEMORY_RULE.name, 5)] {
        let planted: Vec<Rule> = rules::RULES.into_iter().filter(|rule| rule.name == name).collect();
        let [rule] = planted[..] else { panic!("one build of the rule: {planted:?}") };
        let of_rule = |canary: &Canary| canary.family() == "on_failure" && canary.applies_to(name);
        let mistakes: Vec<Canary> = Canary::ALL.into_iter().filter(of_rule).collect();
        assert!(mistakes.len() >= least, "{mistakes:?}");
        for mistake in mistakes {
            let _planted = mistake.plant();
            let found = (0..10_000).find(|seed| run(&rule, &Config::default(), *seed).is_err());
            assert!(found.is_some(), "{name}: {mistake}");
        }
    }
}
