//! Reading the program's own memory without trusting the address: a wrong one is an error, not a fault.

/// Copies what lies at an address; `None` if not all of it can be read.
pub fn bytes<const N: usize>(address: u64) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    fill(address, &mut bytes).then_some(bytes)
}

/// A word at an address.
pub fn word(address: u64) -> Option<u64> {
    bytes(address).map(u64::from_ne_bytes)
}

/// Fills a buffer with what lies at an address.
pub fn fill(address: u64, buffer: &mut [u8]) -> bool {
    let local = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let remote = libc::iovec {
        iov_base: std::ptr::without_provenance_mut(address as usize),
        iov_len: buffer.len(),
    };
    // SAFETY: the buffer is a live slice; the kernel checks the other address.
    let read = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    usize::try_from(read) == Ok(buffer.len())
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_wrong_address_is_an_error() {
        let word = 0x1234_5678_9abc_def0_u64;
        let address = (&raw const word).expose_provenance() as u64;
        assert_eq!(super::word(address), Some(word));
        for wrong in [0, 8, u64::MAX, 1 << 60] {
            assert_eq!(super::word(wrong), None);
        }
    }
}
