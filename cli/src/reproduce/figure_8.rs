//! Figure 8 of Guermouche 2011: traffic matrices of NAS kernels, with clusters and epochs.

mod picture;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use counterfoil_protocols::cluster::Clusters;
use counterfoil_workloads::patterns::{Kernel, Pattern};
use serde_json::{Value, json};

use crate::matrix::TrafficMatrix;
use crate::{Failure, print};
use picture::Picture;

/// Draw five kernels' traffic matrices with their clusters, as in Figure 8 of Guermouche et al. 2011.
///
/// Writes one SVG file per kernel. The paper shows CG and MG on 64 processes, without the number of clusters.
#[derive(Debug, Args)]
pub(crate) struct Figure8Arguments {
    /// Output directory for figure-8-<kernel>.svg; created if missing
    #[arg(long)]
    dir: PathBuf,
    /// Only these kernels: mg, lu, ft, cg, bt
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    kernels: Vec<Kernel>,
    /// Number of ranks; rounded down to a square for BT, else to a power of two
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(8..=512))]
    ranks: u32,
    /// Number of clusters of consecutive ranks
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=512))]
    clusters: u32,
    /// Quantity shown by the colours
    #[arg(long, value_enum, default_value = "messages")]
    by: By,
    /// Print a JSON array with one object per file
    #[arg(long)]
    pub(crate) json: bool,
}

/// Quantity shown in a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum By {
    /// Messages in one iteration
    Messages,
    /// Bytes in one iteration
    Bytes,
}

impl By {
    fn name(self) -> &'static str {
        match self {
            By::Messages => "messages",
            By::Bytes => "bytes",
        }
    }
}

pub(crate) fn run(arguments: &Figure8Arguments) -> Result<ExitCode, Failure> {
    let Figure8Arguments { dir, kernels, ranks, clusters, by, json } = arguments;
    let wanted = |kernel: &Kernel| kernels.is_empty() || kernels.contains(kernel);
    for kernel in Kernel::ALL.into_iter().filter(wanted) {
        let drawn = kernel.ranks_within(*ranks).unwrap_or(*ranks);
        if *clusters > drawn {
            let why = format!("{kernel} on at most {ranks} ranks has {drawn} ranks, fewer than {clusters} clusters");
            return Err(Failure::usage(why));
        }
    }
    let cannot = |error: &dyn std::fmt::Display| Failure::failed(format!("cannot write to {}: {error}", dir.display()));
    std::fs::create_dir_all(dir).map_err(|error| cannot(&error))?;
    let mut rows = Vec::new();
    for kernel in Kernel::ALL.into_iter().filter(wanted) {
        let picture = picture(kernel, *ranks, *clusters, *by)?;
        if picture.ranks != *ranks && !json {
            eprintln!(
                "note: {kernel} is drawn for {} ranks, the largest supported number up to {ranks}",
                picture.ranks
            );
        }
        let file = dir.join(format!("figure-8-{}.svg", kernel.to_string().to_lowercase()));
        let svg = picture.draw().map_err(Failure::failed)?;
        std::fs::write(&file, svg).map_err(|error| cannot(&error))?;
        rows.push(row(kernel, &picture, &file));
    }
    if *json {
        print(&Value::Array(rows).to_string())?;
    } else {
        for row in rows {
            print(row["file"].as_str().unwrap_or_default())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn picture(kernel: Kernel, ranks: u32, clusters: u32, by: By) -> Result<Picture, Failure> {
    let in_cluster = ranks.div_ceil(clusters);
    let ranks = kernel.ranks_within(ranks).unwrap_or(ranks);
    let pattern = Pattern::nas(kernel, ranks).map_err(Failure::usage)?;
    let matrix = pattern.matrix();
    let blocks = Clusters::blocks(ranks, in_cluster).map_err(Failure::failed)?;
    let clusters = if blocks.count() == clusters as usize {
        blocks
    } else {
        // The requested number of clusters, of nearly equal size.
        let of = |rank: u32| u64::from(rank) * u64::from(clusters) / u64::from(ranks);
        Clusters::from_assignment((0..ranks).map(|rank| of(rank) as u32).collect()).map_err(Failure::failed)?
    };
    let amount = |pair: &counterfoil_workloads::patterns::Pair| match by {
        By::Messages => pair.messages,
        By::Bytes => pair.bytes,
    };
    Ok(Picture {
        title: format!("{kernel} on {ranks} ranks, {} clusters: {} of one iteration", clusters.count(), by.name()),
        by: by.name(),
        ranks,
        traffic: TrafficMatrix::new(
            matrix.pairs().iter().map(|pair| (pair.source, pair.destination, amount(pair))).collect(),
        ),
        clusters,
    })
}

fn row(kernel: Kernel, picture: &Picture, file: &Path) -> Value {
    json!({
        "kernel": kernel.to_string(),
        "ranks": picture.ranks,
        "clusters": picture.clusters.count(),
        "by": picture.by,
        "pairs": picture.traffic.pairs().len(),
        "total": picture.traffic.pairs().iter().map(|pair| pair.2).sum::<u64>(),
        "file": file.display().to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_has_a_small_picture_with_its_clusters() {
        for kernel in Kernel::ALL {
            let picture = picture(kernel, 64, 4, By::Messages).unwrap();
            let svg = picture.draw().unwrap();
            assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{kernel}");
            assert!(svg.contains(&format!("{kernel} on 64 ranks")), "{kernel}");
            for epoch in [1, 3, 5, 7] {
                assert!(svg.contains(&format!("epoch {epoch}")), "{kernel}, {epoch}");
            }
            assert!(svg.len() < 200_000, "{kernel}: {} bytes", svg.len());
        }
    }

    #[test]
    fn bt_is_drawn_for_the_next_lower_square_of_ranks() {
        let picture = picture(Kernel::Bt, 128, 16, By::Bytes).unwrap();
        assert_eq!((picture.ranks, picture.clusters.count()), (121, 16));
        assert!(picture.draw().unwrap().contains("bytes of one iteration"));
    }

    #[test]
    fn the_requested_number_of_clusters_is_drawn() {
        for kernel in Kernel::ALL {
            for (ranks, clusters) in [(100, 4), (100, 7), (64, 9), (64, 48), (512, 100)] {
                let picture = picture(kernel, ranks, clusters, By::Messages).unwrap();
                assert_eq!(picture.clusters.count(), clusters as usize, "{kernel} {ranks}");
            }
        }
    }
}
