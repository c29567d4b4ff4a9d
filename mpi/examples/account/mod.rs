//! The line with which a rank says what it did, for the tests that run these examples.

use counterfoil_mpi::logged::Account;

/// Prints it: messages, their bytes, contributions, determinants.
pub(crate) fn print(rank: u32, account: Account) {
    let Account { messages_logged, bytes_logged, contributions, determinants, .. } = account;
    println!("rank {rank} {messages_logged} {bytes_logged} {contributions} {determinants}");
}
