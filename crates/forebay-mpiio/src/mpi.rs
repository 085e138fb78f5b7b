//! Calls to the MPI library. Arguments are words, as in the registers; handles are words in every ABI.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::mem::transmute;

use forebay_hook::foreign::Symbol;

use crate::abi::Abi;

/// The most arguments of a function that is called here.
const ARGUMENTS: usize = 8;
/// Longest value of a hint that is looked at, with its NUL.
const VALUE_BYTES: usize = 256;
/// The tag of all messages. They travel in a communicator of this layer, and each pair of processes sends them in the
/// order of the plan.
const TAG: usize = 7;

macro_rules! symbols {
    ($($symbol:ident $name:literal)+) => {
        $(static $symbol: Symbol = Symbol::elsewhere($name);)+
    };
}

symbols! {
    ALLGATHER "PMPI_Allgather"
    ALLREDUCE "PMPI_Allreduce"
    ALLTOALL "PMPI_Alltoall"
    BARRIER "PMPI_Barrier"
    CALL_ERRHANDLER "PMPI_File_call_errhandler"
    COMM_FREE "PMPI_Comm_free"
    COMM_RANK "PMPI_Comm_rank"
    COMM_SET_ERRHANDLER "PMPI_Comm_set_errhandler"
    COMM_SIZE "PMPI_Comm_size"
    COMM_TEST_INTER "PMPI_Comm_test_inter"
    COMM_SPLIT "PMPI_Comm_split"
    GET_ATOMICITY "PMPI_File_get_atomicity"
    GET_CONTENTS "PMPI_Type_get_contents"
    GET_ENVELOPE "PMPI_Type_get_envelope"
    GET_ENVELOPE_C "PMPI_Type_get_envelope_c"
    GET_EXTENT "PMPI_Type_get_extent"
    GET_POSITION "PMPI_File_get_position"
    INFO_GET "PMPI_Info_get"
    IRECV "PMPI_Irecv"
    ISEND "PMPI_Isend"
    SEEK "PMPI_File_seek"
    SEND "PMPI_Send"
    SET_CANCELLED "PMPI_Status_set_cancelled"
    SET_ELEMENTS "PMPI_Status_set_elements_x"
    TYPE_FREE "PMPI_Type_free"
    TYPE_SIZE "PMPI_Type_size"
    WAITALL "PMPI_Waitall"
}

/// An MPI call failed, or the library lacks the function. Nothing is known of the state of the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failed;

/// What MPI calls give.
pub type Result<T> = std::result::Result<T, Failed>;

/// The MPI library of a caller.
#[derive(Debug, Clone, Copy)]
pub struct Mpi {
    caller: usize,
    /// Its constants.
    pub abi: Abi,
}

/// A communicator of this layer, with its facts.
#[derive(Debug, Clone, Copy)]
pub struct Communicator {
    handle: usize,
    /// Number of this process.
    pub rank: usize,
    /// Number of processes.
    pub size: usize,
}

/// How a data type was made, with the arguments of its constructor.
pub struct Contents {
    /// The number of the combiner.
    pub combiner: i32,
    /// Integers.
    pub integers: Vec<i64>,
    /// Addresses.
    pub addresses: Vec<i64>,
    /// Data types; a derived one is to be freed.
    pub types: Vec<usize>,
}

/// Requests that are waited for together.
#[derive(Debug)]
pub struct Requests {
    handle_bytes: usize,
    /// Handles one behind the other, each of `handle_bytes` bytes.
    words: Vec<u8>,
    /// Messages that belong to the requests.
    messages: Messages,
}

/// Messages of some requests, in the order in which these were begun.
#[derive(Debug, Default)]
struct Messages {
    sent: Vec<Vec<u8>>,
    received: Vec<Vec<u8>>,
}

impl Drop for Requests {
    fn drop(&mut self) {
        if !self.words.is_empty() {
            // They were not waited for, or that failed: MPI may still use their memory.
            std::mem::forget(std::mem::take(&mut self.messages));
        }
    }
}

impl Mpi {
    /// The library that `caller` uses; `None` if it is not known.
    pub fn of(caller: usize) -> Option<Mpi> {
        Some(Mpi {
            caller,
            abi: Abi::of(caller)?,
        })
    }

    /// Calls a function.
    ///
    /// # Safety
    /// The arguments are those that the function takes, and what they point to is as it demands.
    unsafe fn call(&self, function: &Symbol, arguments: &[usize]) -> Result<()> {
        type Function =
            unsafe extern "C" fn(usize, usize, usize, usize, usize, usize, usize, usize) -> i32;
        let mut a = [0; ARGUMENTS];
        a[..arguments.len()].copy_from_slice(arguments);
        let address = function.for_caller(self.caller).ok_or(Failed)?;
        // SAFETY: a function does not look at words beyond its own arguments; the rest is the caller's promise.
        let error = unsafe {
            transmute::<usize, Function>(address)(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7])
        };
        if error == 0 { Ok(()) } else { Err(Failed) }
    }

    /// Has a call of all processes of the program's communicator succeeded on all of them? Collective.
    pub fn all_succeeded(&self, communicator: usize, here: bool) -> Result<bool> {
        let processes = Communicator {
            handle: communicator,
            rank: 0,
            size: 0,
        };
        Ok(self.largest(processes, (!here).into())? == 0)
    }

    /// Is a communicator of the program one between two groups?
    pub fn joins_groups(&self, communicator: usize) -> Result<bool> {
        let mut does = 0_i32;
        // SAFETY: MPI_Comm_test_inter(comm, int *).
        unsafe { self.call(&COMM_TEST_INTER, &[communicator, &raw mut does as usize])? };
        Ok(does != 0)
    }

    /// Number of processes in a communicator of the program.
    pub fn size(&self, communicator: usize) -> Result<usize> {
        let mut size = 0_i32;
        // SAFETY: MPI_Comm_size(comm, int *).
        unsafe { self.call(&COMM_SIZE, &[communicator, &raw mut size as usize])? };
        Ok(size as usize)
    }

    /// A communicator with the processes of another one. Nothing that the program has attached to that one is copied, and
    /// none of its error handlers is called: such a handler need not return. Collective.
    pub fn split(&self, communicator: usize) -> Result<Communicator> {
        let mut rank = 0_i32;
        let mut handle = 0_usize;
        // SAFETY: MPI_Comm_rank(comm, int *); MPI_Comm_split(comm, color, key, MPI_Comm *);
        // MPI_Comm_set_errhandler(comm, errhandler).
        unsafe {
            self.call(&COMM_RANK, &[communicator, &raw mut rank as usize])?;
            let out = &raw mut handle as usize;
            self.call(&COMM_SPLIT, &[communicator, 0, rank as usize, out])?;
            self.call(&COMM_SET_ERRHANDLER, &[handle, self.abi.errors_return])?;
        }
        Ok(Communicator {
            handle,
            rank: rank as usize,
            size: self.size(handle)?,
        })
    }

    /// Frees a communicator. Collective.
    pub fn free(&self, communicator: Communicator) {
        let mut handle = communicator.handle;
        // SAFETY: MPI_Comm_free(MPI_Comm *). A failure leaves a communicator that nobody uses.
        let _ = unsafe { self.call(&COMM_FREE, &[&raw mut handle as usize]) };
    }

    /// The same number of words of every process, one behind the other. Collective.
    pub fn allgather(&self, communicator: Communicator, mine: &[u64]) -> Result<Vec<u64>> {
        let mut all = vec![0_u64; mine.len() * communicator.size];
        let bytes = size_of_val(mine);
        let (from, to) = (mine.as_ptr() as usize, all.as_mut_ptr() as usize);
        let byte = self.abi.byte;
        let arguments = [from, bytes, byte, to, bytes, byte, communicator.handle];
        // SAFETY: MPI_Allgather with buffers of the stated lengths.
        unsafe { self.call(&ALLGATHER, &arguments)? };
        Ok(all)
    }

    /// One word of each process to each: `mine[i]` goes to rank `i`. Collective.
    pub fn alltoall(&self, communicator: Communicator, mine: &[u64]) -> Result<Vec<u64>> {
        assert_eq!(mine.len(), communicator.size, "one word for each process");
        let mut theirs = vec![0_u64; mine.len()];
        let (from, to) = (mine.as_ptr() as usize, theirs.as_mut_ptr() as usize);
        let byte = self.abi.byte;
        // SAFETY: MPI_Alltoall with one word for each process on both sides.
        unsafe {
            self.call(
                &ALLTOALL,
                &[from, 8, byte, to, 8, byte, communicator.handle],
            )?
        };
        Ok(theirs)
    }

    /// The largest of a number of every process. Collective.
    pub fn largest(&self, communicator: Communicator, mine: i64) -> Result<i64> {
        let mut largest = 0_i64;
        let (from, to) = (&raw const mine as usize, &raw mut largest as usize);
        let Abi { int64, max, .. } = self.abi;
        // SAFETY: MPI_Allreduce of one number.
        unsafe { self.call(&ALLREDUCE, &[from, to, 1, int64, max, communicator.handle])? };
        Ok(largest)
    }

    /// Fails if a data type is not committed. No function tells; so an element of it is sent to nobody.
    pub fn check_committed(&self, communicator: Communicator, datatype: usize) -> Result<()> {
        let nothing = 0_u64;
        let (from, nobody) = (&raw const nothing as usize, self.abi.proc_null as usize);
        let arguments = [from, 1, datatype, nobody, TAG, communicator.handle];
        // SAFETY: MPI_Send(buf, count, type, MPI_PROC_NULL, tag, comm), which reads nothing.
        unsafe { self.call(&SEND, &arguments) }
    }

    /// Waits for all processes. Collective.
    pub fn barrier(&self, communicator: Communicator) -> Result<()> {
        // SAFETY: MPI_Barrier(comm).
        unsafe { self.call(&BARRIER, &[communicator.handle]) }
    }

    /// Begins to send bytes to a rank.
    ///
    /// # Safety
    /// The bytes stay where they are until the request is done.
    pub unsafe fn send(
        &self,
        communicator: Communicator,
        to: usize,
        (from, bytes): (*const u8, usize),
        requests: &mut Requests,
    ) -> Result<()> {
        let byte = self.abi.byte;
        let arguments = [from as usize, bytes, byte, to, TAG, communicator.handle];
        // SAFETY: MPI_Isend; the caller keeps the bytes.
        unsafe { self.begin(&ISEND, arguments, requests) }
    }

    /// Begins to receive bytes from a rank.
    ///
    /// # Safety
    /// There is room for the bytes, and nobody else uses it until the request is done.
    pub unsafe fn receive(
        &self,
        communicator: Communicator,
        from: usize,
        (to, bytes): (*mut u8, usize),
        requests: &mut Requests,
    ) -> Result<()> {
        let byte = self.abi.byte;
        let arguments = [to as usize, bytes, byte, from, TAG, communicator.handle];
        // SAFETY: MPI_Irecv; the caller keeps the room.
        unsafe { self.begin(&IRECV, arguments, requests) }
    }

    /// Begins to send a message to a rank.
    pub fn send_message(
        &self,
        communicator: Communicator,
        to: usize,
        message: Vec<u8>,
        requests: &mut Requests,
    ) -> Result<()> {
        let from = (message.as_ptr(), message.len());
        requests.messages.sent.push(message);
        // SAFETY: the bytes stay as long as the requests are not done.
        unsafe { self.send(communicator, to, from, requests) }
    }

    /// Begins to receive a message of so many bytes from a rank. [`Mpi::wait_for_messages`] gives it.
    pub fn receive_message(
        &self,
        communicator: Communicator,
        from: usize,
        bytes: usize,
        requests: &mut Requests,
    ) -> Result<()> {
        let mut message = vec![0; bytes];
        let to = (message.as_mut_ptr(), bytes);
        requests.messages.received.push(message);
        // SAFETY: the bytes stay as long as the requests are not done, and nobody else uses them until then.
        unsafe { self.receive(communicator, from, to, requests) }
    }

    unsafe fn begin(
        &self,
        function: &Symbol,
        arguments: [usize; 6],
        requests: &mut Requests,
    ) -> Result<()> {
        let [a, b, c, d, e, f] = arguments;
        let mut request = 0_usize;
        // SAFETY: the arguments of MPI_Isend or MPI_Irecv, and where the request goes.
        unsafe { self.call(function, &[a, b, c, d, e, f, &raw mut request as usize])? };
        let word = request.to_le_bytes();
        requests.words.extend(&word[..requests.handle_bytes]);
        Ok(())
    }

    /// No requests yet.
    pub fn requests(&self) -> Requests {
        Requests {
            handle_bytes: self.abi.handle_bytes,
            words: Vec::new(),
            messages: Messages::default(),
        }
    }

    /// Waits until all requests are done, and gives the messages that were received, in the order in which that was begun.
    pub fn wait_for_messages(&self, mut requests: Requests) -> Result<Vec<Vec<u8>>> {
        self.wait(&mut requests)?;
        Ok(std::mem::take(&mut requests.messages.received))
    }

    /// Waits until all requests are done, and forgets them.
    pub fn wait(&self, requests: &mut Requests) -> Result<()> {
        let number = requests.words.len() / requests.handle_bytes;
        if number == 0 {
            return Ok(());
        }
        // Handles of 8 bytes want an aligned place.
        let mut aligned = vec![0_u64; requests.words.len().div_ceil(8)];
        // SAFETY: there is room for all words.
        unsafe {
            let to = aligned.as_mut_ptr().cast::<u8>();
            to.copy_from_nonoverlapping(requests.words.as_ptr(), requests.words.len());
        }
        let array = aligned.as_mut_ptr() as usize;
        // SAFETY: MPI_Waitall(count, MPI_Request[], MPI_STATUSES_IGNORE).
        unsafe { self.call(&WAITALL, &[number, array, self.abi.status_ignore])? };
        requests.words.clear();
        Ok(())
    }

    /// Is a file in atomic mode?
    pub fn atomicity(&self, file: usize) -> Result<bool> {
        let mut flag = 0_i32;
        // SAFETY: MPI_File_get_atomicity(fh, int *).
        unsafe { self.call(&GET_ATOMICITY, &[file, &raw mut flag as usize])? };
        Ok(flag != 0)
    }

    /// The individual file pointer, in elements of the view.
    pub fn position(&self, file: usize) -> Result<i64> {
        let mut position = 0_i64;
        // SAFETY: MPI_File_get_position(fh, MPI_Offset *).
        unsafe { self.call(&GET_POSITION, &[file, &raw mut position as usize])? };
        Ok(position)
    }

    /// Sets the individual file pointer.
    pub fn seek(&self, file: usize, position: i64) -> Result<()> {
        let arguments = [file, position as usize, self.abi.seek_set as usize];
        // SAFETY: MPI_File_seek(fh, offset, whence).
        unsafe { self.call(&SEEK, &arguments) }
    }

    /// Calls the error handler of a file.
    pub fn raise(&self, file: usize, class: i32) {
        // SAFETY: MPI_File_call_errhandler(fh, code). A handler that fails has nobody else to tell.
        let _ = unsafe { self.call(&CALL_ERRHANDLER, &[file, class as usize]) };
    }

    /// Says in a status of the program how many bytes were moved.
    ///
    /// # Safety
    /// `status` is a status of the program, or `MPI_STATUS_IGNORE`.
    pub unsafe fn set_status(&self, status: usize, bytes: u64) {
        if status == self.abi.status_ignore {
            return;
        }
        let byte = self.abi.byte;
        // SAFETY: MPI_Status_set_elements_x(status, type, MPI_Count); MPI_Status_set_cancelled(status, 0).
        let _ = unsafe {
            self.call(&SET_ELEMENTS, &[status, byte, bytes as usize])
                .and_then(|()| self.call(&SET_CANCELLED, &[status, 0]))
        };
    }

    /// The value of a hint.
    pub fn hint(&self, info: usize, name: &str) -> Option<String> {
        if self.abi.handle(info) == self.abi.info_null {
            return None;
        }
        let name = CString::new(name).ok()?;
        let mut value = [0_u8; VALUE_BYTES];
        let mut flag = 0_i32;
        let (key, to) = (name.as_ptr() as usize, value.as_mut_ptr() as usize);
        let arguments = [info, key, VALUE_BYTES - 1, to, &raw mut flag as usize];
        // SAFETY: MPI_Info_get(info, key, length, value, int *), which writes length + 1 bytes at most.
        unsafe { self.call(&INFO_GET, &arguments).ok()? };
        let end = value.iter().position(|&b| b == 0)?;
        (flag != 0).then(|| String::from_utf8_lossy(&value[..end]).into_owned())
    }

    /// Bytes of data in an element of a type that is not null.
    pub fn type_size(&self, datatype: usize) -> Result<u64> {
        let mut size = 0_i32;
        // SAFETY: MPI_Type_size(type, int *). A size that an int can't hold is negative.
        unsafe { self.call(&TYPE_SIZE, &[datatype, &raw mut size as usize])? };
        u64::try_from(size).map_err(|_| Failed)
    }

    /// The distance of two elements of a type in bytes.
    pub fn extent(&self, datatype: usize) -> Result<i64> {
        let (mut lower, mut extent) = (0_i64, 0_i64);
        let out = [&raw mut lower as usize, &raw mut extent as usize];
        // SAFETY: MPI_Type_get_extent(type, MPI_Aint *, MPI_Aint *).
        unsafe { self.call(&GET_EXTENT, &[datatype, out[0], out[1]])? };
        Ok(extent)
    }

    /// How a type was made.
    pub fn contents(&self, datatype: usize) -> Result<Contents> {
        let (mut integers, mut addresses, mut types, mut combiner) = (0_i32, 0_i32, 0_i32, 0_i32);
        let arguments = [
            datatype,
            &raw mut integers as usize,
            &raw mut addresses as usize,
            &raw mut types as usize,
            &raw mut combiner as usize,
        ];
        // Of a type that was made with large counts the question below is an error, which may end the program.
        let mut large = [0_i64; 4];
        let [a, b, c, d] = large.each_mut().map(|count| &raw mut *count as usize);
        let question = [datatype, a, b, c, d, &raw mut combiner as usize];
        // SAFETY: MPI_Type_get_envelope_c(type, MPI_Count *, MPI_Count *, MPI_Count *, MPI_Count *, int *); a library
        // without it has no such types.
        if unsafe { self.call(&GET_ENVELOPE_C, &question) }.is_ok() && large[2] != 0 {
            return Err(Failed);
        }
        // SAFETY: MPI_Type_get_envelope(type, int *, int *, int *, int *).
        unsafe { self.call(&GET_ENVELOPE, &arguments)? };
        let mut contents = Contents {
            combiner,
            integers: Vec::new(),
            addresses: Vec::new(),
            types: Vec::new(),
        };
        if types == 0 {
            return Ok(contents); // a predefined type has no contents, and MPI refuses the question
        }
        let mut narrow = vec![0_i32; integers as usize];
        contents.addresses = vec![0; addresses as usize];
        let mut handles = vec![0_u8; types as usize * 8];
        let out = [
            narrow.as_mut_ptr() as usize,
            contents.addresses.as_mut_ptr() as usize,
            handles.as_mut_ptr() as usize,
        ];
        let sizes = [integers, addresses, types].map(|n| n as usize);
        let arguments = [
            datatype, sizes[0], sizes[1], sizes[2], out[0], out[1], out[2],
        ];
        // SAFETY: MPI_Type_get_contents with arrays of the stated lengths.
        unsafe { self.call(&GET_CONTENTS, &arguments)? };
        contents.integers = narrow.into_iter().map(i64::from).collect();
        let handle_bytes = self.abi.handle_bytes;
        let handle = |bytes: &[u8]| bytes.iter().rev().fold(0, |all, &b| all << 8 | b as usize);
        let each = handles.chunks(handle_bytes).take(types as usize);
        contents.types = each.map(handle).collect();
        Ok(contents)
    }

    /// Frees a type that [`Mpi::contents`] gave.
    pub fn free_type(&self, datatype: usize) {
        let mut handle = datatype;
        // SAFETY: MPI_Type_free(MPI_Datatype *).
        let _ = unsafe { self.call(&TYPE_FREE, &[&raw mut handle as usize]) };
    }
}
