//! Debian's HPC Challenge.

use std::fs;
use std::path::Path;

use crate::workspace::TaskError;

/// Program path.
pub(crate) const FILE: &str = "/usr/bin/hpcc";
/// File to which the program appends its results.
pub(crate) const OUTPUT: &str = "hpccoutf.txt";

/// Writes the program's input into its working directory: matrix size, and rows and columns of processes.
pub(crate) fn write_input(folder: &Path, size: u32, (rows, columns): (u32, u32)) -> Result<(), TaskError> {
    let input = folder.join("hpccinf.txt");
    let text = format!(
        "HPLinpack benchmark input file
The Counterfoil authors
HPL.out
8            device out
1            # of problems sizes (N)
{size:<12} Ns
1            # of NBs
80           NBs
0            PMAP process mapping (0=Row-,1=Column-major)
1            # of process grids (P x Q)
{rows:<12} Ps
{columns:<12} Qs
16.0         threshold
1            # of panel fact
2            PFACTs (0=left, 1=Crout, 2=Right)
1            # of recursive stopping criterium
4            NBMINs (>= 1)
1            # of panels in recursion
2            NDIVs
1            # of recursive panel fact.
1            RFACTs (0=left, 1=Crout, 2=Right)
1            # of broadcast
1            BCASTs (0=1rg,1=1rM,2=2rg,3=2rM,4=Lng,5=LnM)
1            # of lookahead depth
1            DEPTHs (>=0)
2            SWAP (0=bin-exch,1=long,2=mix)
64           swapping threshold
0            L1 in (0=transposed,1=no-transposed) form
0            U  in (0=transposed,1=no-transposed) form
1            Equilibration (0=no,1=yes)
8            memory alignment in double (> 0)
##### This line (no. 32) is ignored (it serves as a separator). ######
0            Number of additional problem sizes for PTRANS
{size:<12} values of N
0            number of additional blocking sizes for PTRANS
40           values of NB
"
    );
    fs::write(&input, text).map_err(TaskError::file(&input))
}
