//! Time of ScaLAPACK's QR factorisation, for comparison with Counterfoil's own.
//!
//! `counterfoil-mpi-pdgeqrf PROCESS-ROWS PROCESS-COLUMNS ORDER BLOCK`, on as many ranks. Rank 0 prints the seconds
//! spent in `pdgeqrf`. The library is loaded at run time, and its BLACS starts MPI.

use std::error::Error;
use std::ffi::{c_char, c_int};
use std::io::Write;
use std::time::Instant;

use libloading::{Library, Symbol};

/// Debian's library name for Open MPI.
const SCALAPACK: &str = "libscalapack-openmpi.so.2.2";

type Pinfo = unsafe extern "C" fn(*mut c_int, *mut c_int);
type Get = unsafe extern "C" fn(c_int, c_int, *mut c_int);
type GridInit = unsafe extern "C" fn(*mut c_int, *const c_char, c_int, c_int);
type GridInfo = unsafe extern "C" fn(c_int, *mut c_int, *mut c_int, *mut c_int, *mut c_int);
type Barrier = unsafe extern "C" fn(c_int, *const c_char);
type Exit = unsafe extern "C" fn(c_int);
type Numroc = unsafe extern "C" fn(*const c_int, *const c_int, *const c_int, *const c_int, *const c_int) -> c_int;
type DescInit = unsafe extern "C" fn(
    *mut c_int,
    *const c_int,
    *const c_int,
    *const c_int,
    *const c_int,
    *const c_int,
    *const c_int,
    *const c_int,
    *const c_int,
    *mut c_int,
);
type Qr = unsafe extern "C" fn(
    *const c_int,
    *const c_int,
    *mut f64,
    *const c_int,
    *const c_int,
    *const c_int,
    *mut f64,
    *mut f64,
    *const c_int,
    *mut c_int,
);

fn main() -> Result<(), Box<dyn Error>> {
    let numbers: Vec<c_int> = std::env::args().skip(1).map(|argument| argument.parse()).collect::<Result<_, _>>()?;
    let [process_rows, process_columns, order, block] = numbers[..] else {
        return Err("usage: counterfoil-mpi-pdgeqrf PROCESS-ROWS PROCESS-COLUMNS ORDER BLOCK".into());
    };
    // SAFETY: loading runs the initialisers of ScaLAPACK, BLAS and MPI, made for it.
    let library = unsafe { Library::new(SCALAPACK) }
        .map_err(|error| format!("{error}: apt-get install libscalapack-openmpi2.2 libopenblas0-serial"))?;
    // SAFETY: the types match the functions with these names in ScaLAPACK 2.2 and its BLACS.
    let (pinfo, get, init, info, barrier, exit) = unsafe {
        (
            library.get::<Pinfo>(b"Cblacs_pinfo")?,
            library.get::<Get>(b"Cblacs_get")?,
            library.get::<GridInit>(b"Cblacs_gridinit")?,
            library.get::<GridInfo>(b"Cblacs_gridinfo")?,
            library.get::<Barrier>(b"Cblacs_barrier")?,
            library.get::<Exit>(b"Cblacs_exit")?,
        )
    };
    // SAFETY: as above, for Fortran's functions.
    let (numroc, descinit, qr): (Symbol<'_, Numroc>, Symbol<'_, DescInit>, Symbol<'_, Qr>) =
        unsafe { (library.get(b"numroc_")?, library.get(b"descinit_")?, library.get(b"pdgeqrf_")?) };
    let (mut rank, mut ranks, mut context) = (0, 0, 0);
    let (mut rows, mut columns, mut row, mut column) = (0, 0, 0, 0);
    // SAFETY: all pointers are to this function's variables; the layout is a letter with its zero.
    unsafe {
        pinfo(&mut rank, &mut ranks);
        get(-1, 0, &mut context);
        init(&mut context, c"R".as_ptr(), process_rows, process_columns);
        info(context, &mut rows, &mut columns, &mut row, &mut column);
    }
    if ranks != process_rows * process_columns {
        return Err(format!("a grid of {process_rows} x {process_columns} on {ranks} ranks").into());
    }
    // SAFETY: pointers to this function's variables.
    let [local_rows, local_columns] = [(row, process_rows), (column, process_columns)]
        .map(|(at, of)| unsafe { numroc(&order, &block, &at, &0, &of) });
    let leading = local_rows.max(1);
    let (mut description, mut status) = ([0; 9], 0);
    // SAFETY: `description` has the nine numbers of a dense matrix, and the other pointers are to variables.
    unsafe {
        descinit(description.as_mut_ptr(), &order, &order, &block, &block, &0, &0, &context, &leading, &mut status);
    }
    if status != 0 {
        return Err(format!("descinit: {status}").into());
    }
    let mut bits = 0x9e37_79b9_7f4a_7c15 ^ (rank as u64 + 1);
    let mut number = || {
        bits ^= bits << 13;
        bits ^= bits >> 7;
        bits ^= bits << 17;
        (bits >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
    };
    let mut matrix: Vec<f64> = (0..leading as usize * local_columns.max(1) as usize).map(|_| number()).collect();
    let mut scales = vec![0.0; local_columns.max(1) as usize];
    let mut call = |work: &mut [f64], len: c_int| {
        // SAFETY: the matrix has the rows and columns in its description, `scales` a number for each column, and `work`
        // as many as `len`, or one for -1, which asks for this number.
        unsafe {
            qr(
                &order,
                &order,
                matrix.as_mut_ptr(),
                &1,
                &1,
                description.as_ptr(),
                scales.as_mut_ptr(),
                work.as_mut_ptr(),
                &len,
                &mut status,
            );
        }
        status
    };
    let mut wanted = [0.0];
    call(&mut wanted, -1);
    let mut work = vec![0.0; wanted[0] as usize + 1];
    // SAFETY: the scope is a letter with its zero.
    let wait = || unsafe { barrier(context, c"A".as_ptr()) };
    wait();
    let begun = Instant::now();
    let status = call(&mut work, wanted[0] as c_int);
    wait();
    let seconds = begun.elapsed().as_secs_f64();
    if status != 0 {
        return Err(format!("pdgeqrf: {status}").into());
    }
    if rank == 0 {
        writeln!(std::io::stdout(), "{seconds:.6}")?;
    }
    // SAFETY: the last BLACS call, which ends MPI.
    unsafe { exit(0) };
    Ok(())
}
