//! The rule registry, over which drivers, commands and tests iterate.

use crate::api::Rule;
use crate::{
    coordinated, event_logging, message_tagging, on_failure, pessimistic, send_deterministic, sender_based, unlogged,
    user_level,
};

/// All rules; the first is the default.
pub const RULES: [Rule; 10] = [
    sender_based::RULE,
    pessimistic::RULE,
    send_deterministic::RULE,
    user_level::RULE,
    coordinated::RULE,
    event_logging::RULE,
    message_tagging::RULE,
    on_failure::RULE,
    on_failure::SHARED_MEMORY_RULE,
    unlogged::RULE,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::RuleOptions;

    #[test]
    fn each_rule_is_found_by_its_name_and_says_what_it_is() {
        for rule in RULES {
            assert_eq!(Rule::named(rule.name), Some(rule));
            assert_eq!(RULES.iter().filter(|other| other.name == rule.name).count(), 1);
            assert!(!rule.paper.is_empty() && !rule.summary.is_empty() && !rule.summary.ends_with('.'), "{rule:?}");
            let rank = rule.with_clusters(2).protocol(1, 4, 0).expect("a rank");
            assert_eq!(rank.properties(), rule.properties, "{rule:?}");
            for replaced in [0, 1] {
                assert_eq!(rule.coordinator(4, replaced).is_some(), rule.properties.has_coordinator, "{rule:?}");
            }
        }
        assert_eq!(Rule::named("plain"), None);
    }

    #[test]
    fn a_rule_is_written_by_name_and_options() {
        for rule in RULES.map(|rule| rule.with_clusters(3)) {
            let bytes = postcard::to_stdvec(&rule).expect("bytes");
            assert_eq!(postcard::from_bytes(&bytes), Ok(rule));
        }
        let bytes = postcard::to_stdvec(&("none such", RuleOptions::DEFAULT)).expect("bytes");
        assert!(postcard::from_bytes::<Rule>(&bytes).is_err());
    }
}
