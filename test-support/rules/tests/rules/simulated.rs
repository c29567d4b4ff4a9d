//! Under the simulator: right on every schedule.

use counterfoil_campaign::scaled;
use counterfoil_simulator::{Config, campaign};
use counterfoil_test_rules::exit;

#[test]
fn survivors_save_their_state_and_are_loaded_again() {
    let config = Config { ranks: (2, 5), rounds: (1, 6), ..Config::default() };
    let summary = campaign(&exit::RULE, 0..scaled(5_000), &config, |_| {});
    assert_eq!(summary.failed, 0, "{:#?}", summary.failures);
    let (met, least) = (summary.coverage, scaled(1_000));
    assert!(met.exits > least && met.restarts_from_checkpoint > least && met.restarts_from_start > least, "{met:?}");
    assert!(met.choices_forced > least, "{met:?}");
}
