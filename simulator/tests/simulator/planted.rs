//! The build of the rules in which mistakes can be planted does as the rules where none is.

use counterfoil_campaign::scaled;
use counterfoil_simulator::{
    Config, Coordinated, EventLog, Pattern, Pessimistic, SendDet, SimRule, Tagging, UserLevel, run,
};

fn both_do_the_same<R: SimRule>(config: &Config) {
    for seed in 0..scaled(300) {
        let schedule = config.schedule(seed, R::PROPERTIES.has_coordinator);
        let (rule, planted) = (run::<R>(&schedule), run::<R::Planted>(&schedule));
        assert_eq!(rule.violation, None, "{schedule}");
        assert_eq!(rule, planted, "{schedule}");
    }
}

fn faults<R: SimRule>() -> Config {
    Config { patterns: R::patterns(), faults: (1, 4), rounds: (1, 6), ..Config::default() }
}

#[test]
fn pessimistic() {
    both_do_the_same::<Pessimistic>(&Config { unnamed: true, ..faults::<Pessimistic>() });
}

#[test]
fn send_deterministic() {
    let config = Config { ordered: false, collections: (0, 3), clusters: (0, 2), ..faults::<SendDet>() };
    both_do_the_same::<SendDet>(&config);
}

#[test]
fn user_level() {
    both_do_the_same::<UserLevel>(&Config { overtaking: true, ..faults::<UserLevel>() });
}

#[test]
fn coordinated() {
    let config = Config { collections: (1, 3), patterns: vec![Pattern::Calls], ..Config::default() };
    both_do_the_same::<Coordinated<true, false>>(&config);
    both_do_the_same::<Coordinated<false, true>>(&config);
}

#[test]
fn event_logging_and_message_tagging() {
    both_do_the_same::<EventLog>(&faults::<EventLog>());
    both_do_the_same::<Tagging>(&faults::<Tagging>());
}
