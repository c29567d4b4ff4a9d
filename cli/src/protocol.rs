//! Options naming a rule, for all commands that have them.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use counterfoil_protocols::RULES;
use counterfoil_protocols::api::{Bits, Moment, Rule, RuleOption, RuleOptions};

/// Returns the parser for `--protocol`, limited to rules that fulfil a condition.
pub(crate) fn parser(offers: impl Fn(&Rule) -> bool) -> impl TypedValueParser<Value = Rule> {
    let value = |rule: Rule| PossibleValue::new(rule.name).help(format!("{} ({})", rule.summary, rule.paper));
    let values = RULES.into_iter().filter(|rule| offers(rule)).map(value);
    PossibleValuesParser::new(values).map(|name| Rule::named(&name).unwrap_or_default())
}

/// Returns the parser for `--bits`.
pub(crate) fn bits() -> impl TypedValueParser<Value = Bits> {
    let named = |name: String| Bits::ALL.into_iter().find(|bits| bits.name() == name).unwrap_or_default();
    PossibleValuesParser::new(Bits::ALL.map(Bits::name)).map(named)
}

/// Returns the parser for `--moment`.
pub(crate) fn moment() -> impl TypedValueParser<Value = Moment> {
    let named = |name: String| Moment::ALL.into_iter().find(|moment| moment.name() == name).unwrap_or_default();
    PossibleValuesParser::new(Moment::ALL.map(Moment::name)).map(named)
}

/// Lists the names of the rules fulfilling a condition: `a, b or c`.
pub(crate) fn names(fulfils: impl Fn(&Rule) -> bool) -> String {
    let names: Vec<&str> = RULES.iter().filter(|rule| fulfils(rule)).map(|rule| rule.name).collect();
    match names.split_last() {
        Some((last, [])) => (*last).to_owned(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

/// Returns the options choosing a rule: `--protocol coordinated --bits piggybacked`.
///
/// Leaves out defaults, and clusters, which each command takes in another way.
pub(crate) fn options(rule: &Rule) -> String {
    let mut options = format!("--protocol {}", rule.name);
    let RuleOptions { bits, moment, .. } = rule.options;
    if rule.takes(RuleOption::Bits) && bits != RuleOptions::DEFAULT.bits {
        options += &format!(" --bits {}", bits.name());
    }
    if rule.takes(RuleOption::Moment) && moment != RuleOptions::DEFAULT.moment {
        options += &format!(" --moment {}", moment.name());
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_listed_as_in_a_sentence() {
        let with = |letters: &'static [&'static str]| names(move |rule| letters.contains(&rule.name));
        assert_eq!(with(&[]), "");
        assert_eq!(with(&["unlogged"]), "unlogged");
        assert_eq!(with(&["unlogged", "pessimistic"]), "pessimistic or unlogged");
        assert_eq!(with(&["unlogged", "pessimistic", "coordinated"]), "pessimistic, coordinated or unlogged");
    }

    #[test]
    fn a_rule_is_named_with_the_options_that_it_takes() {
        let [coordinated, plain] = ["coordinated", "sender-based"].map(|name| Rule::named(name).unwrap());
        let varied = |rule: Rule| options(&rule.with_bits(Bits::Piggybacked).with_moment(Moment::Offered));
        assert_eq!(options(&coordinated), "--protocol coordinated");
        assert_eq!(varied(coordinated), "--protocol coordinated --bits piggybacked --moment offered");
        assert_eq!(varied(plain), "--protocol sender-based");
    }
}
