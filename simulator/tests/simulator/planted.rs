//! Campaigns over every rule, and over its build for planted mistakes, with none planted.

use counterfoil_campaign::scaled;
use counterfoil_protocols::RULES;
use counterfoil_protocols::api::{Bits, Moment, Rule, RuleOption};
use counterfoil_simulator::{Config, Pattern, run};

fn both_do_the_same(rule: &Rule) {
    let planted = counterfoil_canaries::rules::RULES.into_iter().find(|planted| planted.name == rule.name);
    let planted = Rule { options: rule.options, ..planted.expect("the same rules") };
    let Rule { properties, .. } = rule;
    let config = Config {
        patterns: Pattern::of(rule),
        faults: (1, 4),
        rounds: (1, 6),
        ordered: !properties.needs_send_determinism,
        overtaking: properties.allows_overtaking,
        late: properties.allows_late_frames,
        collections: if properties.collects { (0, 3) } else { (0, 0) },
        clusters: if rule.takes(RuleOption::Clusters) { (0, 2) } else { (0, 0) },
        ..Config::default()
    };
    for seed in 0..scaled(300) {
        let schedule = config.schedule(seed, properties.has_coordinator);
        let outcome = run(rule, &schedule);
        assert_eq!(outcome.violation, None, "{rule:?}: {schedule}");
        assert_eq!(outcome, run(&planted, &schedule), "{rule:?}: {schedule}");
    }
}

#[test]
fn every_rule_that_recovers_survives_and_its_planted_build_does_the_same() {
    let recovers = |rule: &Rule| rule.properties.recovers();
    RULES.iter().filter(|rule| recovers(rule)).for_each(both_do_the_same);
    let varied = RULES.into_iter().filter(|rule| rule.takes(RuleOption::Moment));
    varied.for_each(|rule| both_do_the_same(&rule.with_bits(Bits::Piggybacked).with_moment(Moment::Offered)));
}
