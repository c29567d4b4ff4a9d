//! `counterfoil run` with Python programs: logged, and with killed ranks.

use std::process::Command;

use counterfoil_test_support::note_untested;

use super::sandbox::{Sandbox, mpi_available};

/// Objects, buffers, requests and collective operations around a ring; a set's order; a seeded generator.
const RING: &str = r#"
import array, random, sys
from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, size = comm.rank, comm.size
right, left = (rank + 1) % size, (rank - 1) % size
generator = random.Random(rank)
names = {f'name {number}' for number in range(30)}
total = 0
for step in range(40):
    out, into = array.array('i', [rank * 1000 + step] * 20), array.array('i', [0] * 20)
    requests = [comm.Irecv(into, left, 1), comm.Isend(out, right, 1)]
    MPI.Request.Waitall(requests)
    total += sum(into)
    received = comm.sendrecv({'step': step, 'names': list(names), 'drawn': generator.random()}, right, 2, None, left, 2)
    total += received['step'] + len(received['names']) + int(1000 * received['drawn'])
    request = comm.isend([rank] * 3, right, 3)
    status = MPI.Status()
    total += sum(comm.recv(source=MPI.ANY_SOURCE, tag=3, status=status)) + status.source
    request.wait()
    total += comm.allreduce(rank) + sum(comm.allgather(step * rank))
    counts = comm.gather((rank, step), root=0)
    total += comm.bcast(sum(one for one, _ in counts) if rank == 0 else None, root=0)
# In one piece: lines of ranks are mixed otherwise.
sys.stdout.write(f'rank {rank} total {total}\n')
"#;

/// Tasks taken by processes from a pool.
const FUTURES: &str = r#"
from mpi4py import MPI
from mpi4py.futures import MPICommExecutor

def square(number):
    return number * number

if __name__ == '__main__':
    with MPICommExecutor(MPI.COMM_WORLD, root=0) as executor:
        if executor is not None:
            print(f'sum {sum(executor.map(square, range(100)))}')
"#;

/// Returns a directory with the programs and the Python to run them, if there are an MPI and mpi4py.
fn sandbox() -> Option<(Sandbox, String)> {
    let python = std::env::var("COUNTERFOIL_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let has_mpi4py = Command::new(&python).args(["-c", "import mpi4py"]).output().is_ok_and(|ran| ran.status.success());
    if !has_mpi4py {
        note_untested(&format!("programs in Python: {python} has no mpi4py (COUNTERFOIL_PYTHON)"));
        return None;
    }
    let sandbox = mpi_available().then(Sandbox::new)?;
    std::fs::write(sandbox.path().join("ring.py"), RING).unwrap();
    std::fs::write(sandbox.path().join("futures.py"), FUTURES).unwrap();
    Some((sandbox, python))
}

/// Returns the lines printed by a job, sorted.
fn printed(sandbox: &Sandbox, arguments: &[&str]) -> Vec<String> {
    let output = sandbox.counterfoil(&[&["run", "--json"], arguments].concat());
    assert_eq!(output.code, Some(0), "{arguments:?}: {}", output.stderr);
    let mut lines: Vec<String> = output.stdout.lines().map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

#[test]
fn programs_in_python_are_logged() {
    let Some((sandbox, python)) = sandbox() else { return };
    let off = printed(&sandbox, &["-n", "3", "--logging", "off", "--", &python, "ring.py"]);
    assert_eq!(off.len(), 3);
    let output = sandbox.counterfoil(&["run", "--json", "-n", "3", "--", &python, "ring.py"]);
    let mut lines: Vec<&str> = output.stdout.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, off, "{}", output.stderr);
    let summary = output.summary();
    for rank in summary["ranks"].as_array().unwrap() {
        // Three messages to a neighbour in each step.
        assert!(rank["messages_logged"].as_u64().unwrap() >= 120, "{rank}");
    }
}

#[test]
fn programs_in_python_recover() {
    let Some((sandbox, python)) = sandbox() else { return };
    let plain = printed(&sandbox, &["-n", "3", "--recover", "--", &python, "ring.py"]);
    for kill in ["0@5", "1@200", "2@700"] {
        assert_eq!(printed(&sandbox, &["-n", "3", "--recover", "--kill", kill, "--", &python, "ring.py"]), plain);
    }
    assert_eq!(
        printed(&sandbox, &["-n", "3", "--recover", "--kill", "1@60", "--", &python, "futures.py"]),
        ["sum 328350"]
    );
    assert!(sandbox.remaining_jobs().is_empty());
}

#[test]
fn a_rank_in_python_is_replayed_alone() {
    let Some((sandbox, python)) = sandbox() else { return };
    let plain = printed(&sandbox, &["-n", "2", "--recover", "--log-dir", "logs", "--", &python, "ring.py"]);
    for rank in ["0", "1"] {
        let replayed = sandbox.counterfoil(&["replay", "--rank", rank, "logs", "--json", "--", &python, "ring.py"]);
        assert_eq!(replayed.code, Some(0), "{}", replayed.stderr);
        assert!(plain.contains(&replayed.stdout.trim_end().to_owned()), "{}", replayed.stdout);
    }
}
