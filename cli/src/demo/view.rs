//! Demo progress: one bar per rank on a terminal, plain lines elsewhere.

use std::io::IsTerminal;

use counterfoil_runtime::local::{JobOptions, Observer, Progress};
use counterfoil_workloads::Workload;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::report::rank_count;

/// Progress display on standard error.
pub(super) enum View {
    Nothing,
    Lines,
    Bars { title: ProgressBar, ranks: Vec<ProgressBar> },
}

impl View {
    pub(super) fn new(quiet: bool, title: &str, job: &JobOptions, workload: &dyn Workload) -> View {
        if quiet {
            return View::Nothing;
        }
        let ranks = job.settings.ranks;
        if !std::io::stderr().is_terminal() {
            eprintln!("{title}: {} of class {} on {}", workload.name(), workload.class(), rank_count(ranks));
            return View::Lines;
        }
        let all = MultiProgress::new();
        let plain =
            |template: &str| ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let heading = all.add(ProgressBar::new(0).with_style(plain("{msg}")));
        heading.set_message(format!(
            "{title}: {} of class {} on {}",
            workload.name(),
            workload.class(),
            rank_count(ranks)
        ));
        let style = plain("  {prefix:>8} {bar:32.cyan/blue} {pos:>4}/{len:<4} {msg}").progress_chars("=> ");
        let bars = (0..ranks).map(|rank| {
            let bar = all.add(ProgressBar::new(workload.iterations(rank, ranks).at_most).with_style(style.clone()));
            bar.set_prefix(format!("rank {rank}"));
            bar
        });
        let bars = bars.collect();
        View::Bars { title: heading, ranks: bars }
    }

    /// Leaves the bars on the terminal as they are.
    pub(super) fn finish(&mut self) {
        if let View::Bars { title, ranks, .. } = self {
            ranks.iter().chain([&*title]).for_each(ProgressBar::abandon);
            // The bars leave the cursor at the end of the last one.
            eprintln!();
        }
    }

    fn set_status(&self, rank: u32, text: String) {
        match self {
            View::Nothing => {}
            View::Lines => eprintln!("  rank {rank}: {text}"),
            View::Bars { ranks, .. } => {
                if let Some(bar) = ranks.get(rank as usize) {
                    bar.set_message(text);
                }
            }
        }
    }

    fn move_to(&self, rank: u32, n: u64) {
        if let View::Bars { ranks, .. } = self
            && let Some(bar) = ranks.get(rank as usize)
        {
            bar.set_position(n);
        }
    }
}

impl Observer for View {
    fn handle_progress(&mut self, progress: Progress) {
        match progress {
            Progress::Started { rank, incarnation: 0, pid } => {
                if matches!(self, View::Bars { .. }) {
                    self.set_status(rank, format!("process {pid}"));
                }
            }
            Progress::Started { rank, incarnation, pid } => {
                self.set_status(rank, format!("replaced by process {pid} (incarnation {incarnation}), replaying"));
                self.move_to(rank, 0);
            }
            Progress::Iteration { rank, n } => self.move_to(rank, n),
            Progress::Died { rank, iteration, planned, .. } => {
                let cause = if planned { "killed" } else { "killed by another process" };
                self.set_status(rank, format!("{cause} in iteration {iteration}"));
            }
            Progress::PowerCut { iteration } => self.set_status(0, format!("power cut in iteration {iteration}")),
            Progress::Restarts { generation, lost } => {
                let what = if lost == 1 { "state is" } else { "states are" };
                self.set_status(0, format!("all are started again (restart {generation}): {lost} {what} lost"));
            }
            Progress::RollsBack { rank, epoch } => {
                self.set_status(
                    rank,
                    format!("rolls back to the checkpoint of epoch {epoch}: a killed rank lacks its later sends"),
                );
            }
            Progress::Restored { rank, epoch } => {
                self.set_status(rank, format!("restored from the checkpoint of epoch {epoch}"))
            }
            Progress::ReplayComplete { rank } => self.set_status(rank, "replay received, catching up".to_owned()),
            Progress::CaughtUp { rank } => self.set_status(rank, "caught up".to_owned()),
            Progress::Done { rank } => {
                if let View::Bars { ranks, .. } = &*self
                    && let Some(bar) = ranks.get(rank as usize)
                {
                    // In some programs the number of iterations depends on timing.
                    bar.set_length(bar.position());
                    bar.tick();
                }
            }
            _ => {}
        }
    }
}
