//! The list of mistakes.

use std::collections::BTreeSet;
use std::thread;

use counterfoil_canaries::rules::RULES;
use counterfoil_canaries::{Canary, without_effect};

use super::send_deterministic::explicit_acks;

#[test]
fn every_mistake_has_a_name_of_its_own_and_a_rule_that_makes_it() {
    let mut names = BTreeSet::new();
    for canary in Canary::ALL {
        assert!(names.insert(canary.name()), "{canary}");
        assert_eq!((Canary::named(canary.name()), format!("{canary:?}")), (Some(canary), canary.to_string()));
        assert!(RULES.iter().any(|rule| canary.applies_to(rule.name)), "{canary}");
        assert!(canary.description().ends_with('.'), "{canary}");
    }
    let made = RULES.iter().filter(|rule| Canary::ALL.iter().any(|canary| canary.applies_to(rule.name)));
    assert!(made.count() >= 6, "all rules but the plain one, and the one that keeps nothing");
    assert!(without_effect("pessimistic").eq(["ForgetChoices"]) && without_effect("sender-based").count() == 0);
    assert_eq!(Canary::named("Nightingale"), None);
}

#[test]
fn a_mistake_is_planted_on_its_thread_until_it_is_dropped() {
    let planted = Canary::FirstLoggedAckMissing.plant();
    assert_eq!(explicit_acks(), 0);
    let other = Canary::ReplayUnmarked.plant();
    assert_eq!(explicit_acks(), 1, "another one replaces it");
    drop(other);
    assert_eq!(explicit_acks(), 0, "and gives way to it again");
    assert_eq!(thread::spawn(explicit_acks).join().unwrap(), 1, "no other thread has it");
    drop(planted);
    assert_eq!(explicit_acks(), 1);
}
