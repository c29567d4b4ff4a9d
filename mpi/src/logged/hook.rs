//! Polls the control communicator while the program waits in an MPI call.

use std::cell::RefCell;
use std::rc::{Rc, Weak};

use counterfoil_mpi_core::control::progress_hook::ProgressHook;

use super::engine::Engine;

thread_local! {
    /// This thread's engine: no other thread may poll for it.
    static ENGINE: RefCell<Weak<RefCell<Engine>>> = const { RefCell::new(Weak::new()) };
}

/// Registers the engine.
pub(super) fn begin(engine: &Rc<RefCell<Engine>>) {
    ENGINE.set(Rc::downgrade(engine));
    let mut engine = engine.borrow_mut();
    engine.hook = Some(ProgressHook::begin(&engine.universe, poll));
}

/// Polls for this thread's engine, unless a call is using it.
///
/// May be called from any MPI call.
fn poll() {
    let engine = ENGINE.try_with(|engine| engine.try_borrow().ok().and_then(|engine| engine.upgrade()));
    if let Ok(Some(engine)) = engine
        && let Ok(mut engine) = engine.try_borrow_mut()
    {
        engine.poll_in_call();
    }
}
