! Checkpoints of an MPI program under `counterfoil run --recover`: counterfoil_checkpoint.h for Fortran.
!
! Compile this file with the program. Without Counterfoil the calls do nothing.
!
!     call counterfoil_protect(0, c_loc(step), c_sizeof(step))
!     call counterfoil_protect(1, c_loc(field), 8_c_size_t * size(field))     ! target, contiguous
!     if (counterfoil_restarted()) print *, 'goes on from step', step
!     do while (step < steps)
!       if (mod(step, 100) == 0) call counterfoil_checkpoint()
!
! Lines that the program has printed are complete before a checkpoint: both calls flush standard output and error.
module counterfoil_checkpoints
  use, intrinsic :: iso_c_binding, only: c_associated, c_char, c_f_procpointer, c_funptr, c_int, c_null_char, c_null_ptr, &
    c_ptr, c_size_t
  use, intrinsic :: iso_fortran_env, only: output_unit, error_unit
  implicit none
  private
  public :: counterfoil_protect, counterfoil_restarted, counterfoil_checkpoint

  abstract interface
    integer(c_int) function protect_function(id, memory, bytes) bind(c)
      import :: c_int, c_ptr, c_size_t
      integer(c_int), value :: id
      type(c_ptr), value :: memory
      integer(c_size_t), value :: bytes
    end function
    integer(c_int) function plain_function() bind(c)
      import :: c_int
    end function
  end interface

  interface
    type(c_funptr) function dlsym(handle, name) bind(c)
      import :: c_funptr, c_ptr, c_char
      type(c_ptr), value :: handle
      character(kind=c_char), intent(in) :: name(*)
    end function
  end interface

contains

  ! Names memory that checkpoints save. A second call with an id replaces the first.
  subroutine counterfoil_protect(id, memory, bytes)
    integer, intent(in) :: id
    type(c_ptr), intent(in) :: memory
    integer(c_size_t), intent(in) :: bytes
    type(c_funptr) :: found
    procedure(protect_function), pointer :: protect
    integer(c_int) :: code
    found = dlsym(c_null_ptr, 'counterfoil_protect' // c_null_char)
    if (.not. c_associated(found)) return
    call c_f_procpointer(found, protect)
    code = protect(int(id, c_int), memory, bytes)
  end subroutine

  ! Says that the program is set up. Returns .true. if the memory is now that of a checkpoint.
  logical function counterfoil_restarted()
    counterfoil_restarted = call_plain('counterfoil_restarted' // c_null_char) == 1
  end function

  ! Takes a checkpoint of this rank. `taken` is .false. if it can't be taken: the one before stays.
  subroutine counterfoil_checkpoint(taken)
    logical, intent(out), optional :: taken
    integer(c_int) :: code
    code = call_plain('counterfoil_checkpoint' // c_null_char)
    if (present(taken)) taken = code == 0
  end subroutine

  integer(c_int) function call_plain(name)
    character(kind=c_char, len=*), intent(in) :: name
    type(c_funptr) :: found
    procedure(plain_function), pointer :: plain
    call_plain = 0
    flush(output_unit)
    flush(error_unit)
    found = dlsym(c_null_ptr, name)
    if (.not. c_associated(found)) return
    call c_f_procpointer(found, plain)
    call_plain = plain()
  end function
end module
