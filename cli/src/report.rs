//! `counterfoil report`: renders a job's log directory as a page with pictures.

mod figures;
mod job;
mod log_only;
mod output;
mod page;
mod pictures;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use indicatif::{BinaryBytes, HumanCount};

use crate::{Failure, print};
use figures::Figures;
pub(crate) use figures::{rank_list, strip_digits};
pub(crate) use job::OF_RECOVER;
use job::{JobError, JobProfile};
use output::{OutputError, OutputFiles};
use pictures::Picture;

/// Report what a job did: a self-contained HTML page, and its pictures as SVG files.
///
/// Shows the traffic between ranks, log growth, message sizes, acknowledgement delays, collective operations, a table
/// of ranks, and the job's settings. Reads a directory written by `counterfoil run --log-dir DIR`. Ranks without a
/// profile (killed, or run by the demo) are marked; their figures come from the remains of their log.
#[derive(Debug, Args)]
pub(crate) struct ReportArguments {
    /// Directory with the ranks' logs
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Output file ending in .html, or folder, which is created if missing [default: DIR/report]
    #[arg(long, value_name = "FOLDER|FILE")]
    out: Option<PathBuf>,
    /// Print the figures as a JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Error of `counterfoil report`.
#[derive(Debug, thiserror::Error)]
enum ReportError {
    #[error(transparent)]
    Job(#[from] JobError),
    #[error(transparent)]
    Output(#[from] OutputError),
    #[error("cannot draw the picture `{name}`: {why}")]
    Draw { name: &'static str, why: String },
}

pub(crate) fn run(arguments: &ReportArguments) -> Result<ExitCode, Failure> {
    let (figures, files) = report(&arguments.dir, arguments.out.as_deref()).map_err(Failure::failed)?;
    if arguments.json {
        print(&figures.to_json(&files).to_string())?;
    } else {
        print(&as_text(&figures, &files))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes the page and the pictures; returns the figures and the files, the page first.
fn report(dir: &Path, out: Option<&Path>) -> Result<(Figures, Vec<PathBuf>), ReportError> {
    let figures = Figures::of(JobProfile::read(dir)?);
    let mut pictures = Vec::new();
    for picture in Picture::ALL {
        let drawn = picture.draw(&figures);
        let svg = drawn.map_err(|error| ReportError::Draw { name: picture.name(), why: error.to_string() })?;
        pictures.extend(svg.map(|svg| (picture, svg)));
    }
    let output = OutputFiles::new(out.map_or_else(|| dir.join("report"), Path::to_owned));
    let page = page::render(&figures, &pictures);
    Ok((figures, output.write(&page, &pictures)?))
}

fn as_text(figures: &Figures, files: &[PathBuf]) -> String {
    let total = figures.logged();
    let (messages, bytes) = (HumanCount(total.messages), BinaryBytes(total.bytes));
    let plural = |count: u64| if count == 1 { "" } else { "s" };
    let mut lines = vec![format!(
        "{}: {} rank{}, {messages} message{} logged ({bytes}){}",
        figures.name(),
        figures.ranks(),
        plural(figures.ranks().into()),
        plural(total.messages),
        figures.contributions_text()
    )];
    lines.extend(figures.notes().iter().map(|note| format!("note: {note}")));
    lines.extend(files.iter().map(|file| file.display().to_string()));
    lines.join("\n")
}
