//! Memory: what is written is what is read, at any byte.

use crate::case::gpu;
use phonograph_wgpu::{GpuError, MemoryError, Wgpu};

#[test]
fn bytes_are_written_and_read_wherever_they_lie() {
    let Some(gpu) = gpu() else { return };
    for size in [1, 3, 4, 7, 13, 16] {
        let memory = gpu.alloc(size as u64).unwrap();
        let mut expected = vec![0; size];
        assert_eq!(gpu.read::<u8>(&memory).unwrap(), expected, "memory is zeroed");
        for (round, start) in (0..size).enumerate() {
            for end in start..=size {
                let bytes: Vec<u8> = (start..end).map(|at| (at * 7 + round + end) as u8).collect();
                gpu.write_at(&memory, start as u64, &bytes).unwrap();
                expected[start..end].copy_from_slice(&bytes);
                let mut part = vec![0; end - start];
                gpu.read_at(&memory, start as u64, &mut part).unwrap();
                assert_eq!(part, bytes);
                assert_eq!(gpu.read::<u8>(&memory).unwrap(), expected);
            }
        }
    }
}

#[test]
fn mistakes_are_told() {
    let Some(gpu) = gpu() else { return };
    let memory = gpu.alloc(10).unwrap();
    let size = MemoryError::Size { bytes: 10, element: 4 };
    assert_eq!(gpu.read::<f32>(&memory), Err(size));
    assert_eq!(gpu.write(&memory, &[0u8; 9]), Err(MemoryError::Length { given: 9, held: 10 }));
    let range = MemoryError::Range { start: 8, end: 11, bytes: 10 };
    assert_eq!(gpu.read_at(&memory, 8, &mut [0; 3]), Err(range));
    assert!(matches!(gpu.alloc(u64::MAX), Err(GpuError::OutOfMemory(_))));
    let other = Wgpu::new().unwrap();
    assert_eq!(other.read::<u8>(&memory), Err(MemoryError::OtherDevice));
}
