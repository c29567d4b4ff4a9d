//! The report as a self-contained HTML page.

use counterfoil_profile::{Ended, Traffic};
use indicatif::{BinaryBytes, HumanCount};
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::figures::{Figures, QUANTILES};
use super::job::Source;
use super::pictures::Picture;
use crate::units::duration;

/// Maximum number of rows in the table of the busiest channels.
const CHANNELS_MAX: usize = 20;

const STYLE: &str = "\
body { font: 15px/1.45 sans-serif; color: #1b1b1b; background: #fff; max-width: 1180px; margin: 2em auto; padding: 0 1.2em; }
h1 { font-size: 1.5em; margin-bottom: 0.2em; } h2 { font-size: 1.15em; margin: 1.8em 0 0.5em; }
table { border-collapse: collapse; margin: 0.5em 0; } th, td { padding: 0.2em 0.7em; white-space: nowrap; border-bottom: 1px solid #ddd; text-align: right; }
th { font-weight: 600; border-bottom-color: #888; } .left { text-align: left; }
.scroll { overflow-x: auto; } .notes { background: #fff6e0; border: 1px solid #e6c877; padding: 0.6em 1em 0.6em 2em; }
.pair { display: flex; flex-wrap: wrap; gap: 1em; } figure { margin: 0.6em 0; max-width: 100%; }
figure svg { max-width: 100%; height: auto; } figcaption { color: #555; max-width: 46em; font-size: 0.92em; }
.words { white-space: normal; } code { font-size: 0.95em; overflow-wrap: anywhere; } .missing { color: #a33; }";

/// Renders the page.
///
/// `pictures`: those with data.
pub(super) fn render(figures: &Figures, pictures: &[(Picture, String)]) -> String {
    let name = figures.name();
    let total = figures.logged();
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "Message log of " (name) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { "Message log of " (name) }
                p {
                    (figures.ranks()) (if figures.ranks() == 1 { " rank, " } else { " ranks, " }) (HumanCount(total.messages))
                    (if total.messages == 1 { " message, " } else { " messages, " }) (BinaryBytes(total.bytes)) (figures.contributions_text()) "."
                }
                @let notes = figures.notes();
                @if !notes.is_empty() {
                    ul.notes { @for note in &notes { li { (note) } } }
                }
                h2 { "The job" }
                (settings(figures))
                h2 { "Traffic between ranks" }
                div.pair { (picture(Picture::MatrixMessages, pictures)) (picture(Picture::MatrixBytes, pictures)) }
                (busiest(figures))
                h2 { "Over time" }
                @for which in [Picture::Growth, Picture::Memory, Picture::Unacknowledged] { (picture(which, pictures)) }
                h2 { "Messages" }
                (picture(Picture::Sizes, pictures))
                (picture(Picture::Delays, pictures))
                (delays(figures))
                h2 { "Collective operations" }
                (picture(Picture::Collectives, pictures))
                h2 { "Ranks" }
                (ranks(figures))
            }
        }
    }
    .into_string()
}

fn picture(which: Picture, pictures: &[(Picture, String)]) -> Markup {
    let svg = pictures.iter().find(|(picture, _)| *picture == which).map(|(_, svg)| svg);
    html! {
        @match svg {
            Some(svg) => figure id=(which.name()) { (PreEscaped(svg)) figcaption { (which.caption()) } },
            None => p.missing { "No data for the picture “" (which.name()) "”." },
        }
    }
}

fn settings(figures: &Figures) -> Markup {
    html! {
        table {
            @if let Some(job) = figures.job() {
                tr { th.left { "program" } td.left.words { code { (job.program.join(" ")) } } td {} }
                tr { th.left { "MPI" } td.left { (job.mpi) } td {} }
                @for setting in &job.settings {
                    tr { th.left { (setting.name) } td.left { (setting.value) } td.left { (setting.source) } }
                }
                @if let Some(wall_s) = job.wall_s {
                    tr { th.left { "time" } td.left { (format!("{wall_s:.3} s")) } td {} }
                }
                @if let Some(code) = job.exit_code {
                    tr { th.left { "exit code" } td.left { (code) @if job.interrupted { ", interrupted" } } td {} }
                }
            }
            tr { th.left { "directory" } td.left { code { (figures.dir().display()) } } td {} }
        }
    }
}

/// Table of the channels with the most bytes.
fn busiest(figures: &Figures) -> Markup {
    let mut channels: Vec<(u32, u32, Traffic)> = figures.channels().collect();
    let all = channels.len();
    channels.sort_by_key(|&(from, to, traffic)| (std::cmp::Reverse((traffic.bytes, traffic.messages)), from, to));
    channels.truncate(CHANNELS_MAX);
    html! {
        @if !channels.is_empty() {
            table {
                tr { th { "from" } th { "to" } th { "messages" } th { "bytes" } th { "bytes each" } }
                @for (from, to, traffic) in &channels {
                    tr {
                        td { (from) } td { (to) }
                        td { (HumanCount(traffic.messages)) } td { (HumanCount(traffic.bytes)) }
                        td { (HumanCount(traffic.bytes / traffic.messages.max(1))) }
                    }
                }
            }
            @if all > channels.len() {
                p { "The " (CHANNELS_MAX) " of " (HumanCount(all as u64)) " channels with the most bytes." }
            }
        }
    }
}

fn delays(figures: &Figures) -> Markup {
    let delays = &figures.delays;
    html! {
        @if delays.samples() > 0 {
            table {
                tr { th.left { "fraction of messages" } @for share in QUANTILES { th { (format!("{} %", share * 100.0)) } } }
                tr {
                    td.left { "acknowledged within" }
                    @for share in QUANTILES {
                        td { (delays.quantile_ns(share).map(|ns| duration(ns as f64)).unwrap_or_default()) }
                    }
                }
            }
            p {
                "Sampled delays: " (HumanCount(delays.samples())) ". Samples still unacknowledged at the end: "
                (HumanCount(delays.unanswered)) ". Samples skipped because 64 were pending: " (HumanCount(delays.left_out)) "."
            }
        }
    }
}

fn ranks(figures: &Figures) -> Markup {
    let sum = |of: &[counterfoil_profile::Channel]| {
        of.iter().fold((0u64, 0u64), |sum, one| (sum.0.saturating_add(one.messages), sum.1.saturating_add(one.bytes)))
    };
    html! {
        div.scroll {
            table {
                tr {
                    th { "rank" } th { "logged" } th { "bytes" } th { "received" } th { "collectives" } th { "determinants" }
                    th { "peak memory" } th { "spilled" } th { "waited" } th { "time" } th.left { "ended" }
                }
                @for (rank, source) in figures.sources() {
                    @match source {
                        Source::Profile(profile) => {
                            @let (logged, bytes) = sum(&profile.logged);
                            tr {
                                td { (rank) } td { (HumanCount(logged)) } td { (BinaryBytes(bytes)) }
                                td { (HumanCount(sum(&profile.received).0)) }
                                td { (HumanCount(profile.collectives.iter().fold(0, |sum: u64, one| sum.saturating_add(one.calls)))) }
                                td { (HumanCount(profile.determinants)) }
                                td { (BinaryBytes(profile.memory_peak_bytes)) } td { (BinaryBytes(profile.spilled_bytes)) }
                                td { (format!("{:.3} s", profile.waited_ms as f64 / 1e3)) }
                                td { (format!("{:.3} s", profile.wall_ms as f64 / 1e3)) }
                                td.left {
                                    (match profile.ended { Ended::Finalized => "MPI_Finalize", Ended::Aborted => "MPI_Abort" })
                                    @if profile.not_kept.is_some() { span.missing { ", log not kept" } }
                                }
                            }
                        }
                        Source::Log(_) | Source::Missing(_) => {
                            @let (logged, is_reported) = figures.logged_by(rank);
                            @let is_missing = matches!(source, Source::Missing(_));
                            tr {
                                td { (rank) }
                                @if is_missing && !is_reported {
                                    td.left.missing colspan="10" { "missing" }
                                } @else {
                                    td { (HumanCount(logged.messages)) } td { (BinaryBytes(logged.bytes)) }
                                    td.left.missing colspan="8" {
                                        (match (is_missing, is_reported) {
                                            (true, _) => "missing: counted by receivers",
                                            (false, true) => "no profile: counted in its log, or by receivers",
                                            (false, false) => "no profile: counted in its log",
                                        })
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
