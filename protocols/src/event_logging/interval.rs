//! Checkpoints by interval (section 5.8).

use std::time::Duration;

/// Returns the checkpoint interval that minimises the expected run time of a program: `sqrt(2 T_c T_up)` (section 5.8).
///
/// `cost`: checkpoint duration. `uptime`: mean time between failures of the job.
///
/// ```
/// use std::time::Duration;
/// use counterfoil_protocols::event_logging::optimal_interval;
///
/// // A checkpoint of 4 minutes, a failure every 50.
/// assert_eq!(optimal_interval(Duration::from_secs(240), Duration::from_secs(3_000)), Duration::from_secs(1_200));
/// ```
pub fn optimal_interval(cost: Duration, uptime: Duration) -> Duration {
    let seconds = (2.0 * cost.as_secs_f64() * uptime.as_secs_f64()).sqrt();
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_the_root_of_twice_the_product() {
        let seconds = Duration::from_secs;
        assert_eq!(optimal_interval(seconds(2), seconds(100)), seconds(20));
        assert_eq!(optimal_interval(Duration::ZERO, seconds(100)), Duration::ZERO);
        assert_eq!(optimal_interval(seconds(0), Duration::MAX), Duration::ZERO);
    }
}
