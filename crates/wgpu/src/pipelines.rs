//! Compiled kernels and their layouts, kept for as long as their device.
//!
//! A kernel's layout is told by which of its storage bindings it writes. There is one pipeline for each source and
//! layout; sources hold no shapes, so there are as many as there are different kernels.

use rustc_hash::FxHashMap;

use crate::error::GpuError;
use crate::gpu::Gpu;

/// For each storage binding of group 0 whether it is written.
pub(crate) type Writes = Box<[bool]>;

/// The layouts of kernels with the same bindings.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub storage: wgpu::BindGroupLayout,
    pipeline: wgpu::PipelineLayout,
}

#[derive(Debug)]
pub(crate) struct Pipelines {
    /// The layout of group 1: a uniform block at a dynamic offset.
    pub block: wgpu::BindGroupLayout,
    layouts: FxHashMap<Writes, Layout>,
    compiled: FxHashMap<(Writes, String), wgpu::ComputePipeline>,
}

impl Pipelines {
    pub fn new(gpu: &Gpu) -> Result<Self, GpuError> {
        let entry = entry(0, wgpu::BufferBindingType::Uniform, true);
        let descriptor = wgpu::BindGroupLayoutDescriptor { label: None, entries: &[entry] };
        let block = gpu.scoped(|| gpu.device.create_bind_group_layout(&descriptor))?;
        Ok(Self { block, layouts: FxHashMap::default(), compiled: FxHashMap::default() })
    }

    pub fn layout(&mut self, gpu: &Gpu, writes: &Writes) -> Result<Layout, GpuError> {
        if let Some(layout) = self.layouts.get(writes) {
            return Ok(layout.clone());
        }
        let entries: Vec<_> = (0..)
            .zip(writes)
            .map(|(binding, &writes)| {
                let ty = wgpu::BufferBindingType::Storage { read_only: !writes };
                entry(binding, ty, false)
            })
            .collect();
        let layout = gpu.scoped(|| {
            let descriptor = wgpu::BindGroupLayoutDescriptor { label: None, entries: &entries };
            let storage = gpu.device.create_bind_group_layout(&descriptor);
            let descriptor = wgpu::PipelineLayoutDescriptor {
                label: None,
                bind_group_layouts: &[Some(&storage), Some(&self.block)],
                immediate_size: 0,
            };
            let pipeline = gpu.device.create_pipeline_layout(&descriptor);
            Layout { storage, pipeline }
        })?;
        self.layouts.insert(writes.clone(), layout.clone());
        Ok(layout)
    }

    /// A kernel by its source and entry point.
    pub fn pipeline(
        &mut self,
        gpu: &Gpu,
        writes: &Writes,
        source: &str,
        entry: &str,
    ) -> Result<wgpu::ComputePipeline, GpuError> {
        let key = (writes.clone(), format!("{entry}\n{source}"));
        if let Some(pipeline) = self.compiled.get(&key) {
            return Ok(pipeline.clone());
        }
        let layout = self.layout(gpu, writes)?;
        let module = gpu.scoped(|| {
            gpu.device.create_shader_module(wgpu::ShaderModuleDescriptor {
                label: Some(entry),
                source: wgpu::ShaderSource::Wgsl(source.into()),
            })
        })?;
        let pipeline = gpu.scoped(|| {
            gpu.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: Some(entry),
                layout: Some(&layout.pipeline),
                module: &module,
                entry_point: Some(entry),
                compilation_options: wgpu::PipelineCompilationOptions {
                    constants: &[],
                    zero_initialize_workgroup_memory: false,
                },
                cache: None,
            })
        })?;
        self.compiled.insert(key, pipeline.clone());
        Ok(pipeline)
    }
}

fn entry(binding: u32, ty: wgpu::BufferBindingType, dynamic: bool) -> wgpu::BindGroupLayoutEntry {
    wgpu::BindGroupLayoutEntry {
        binding,
        visibility: wgpu::ShaderStages::COMPUTE,
        ty: wgpu::BindingType::Buffer { ty, has_dynamic_offset: dynamic, min_binding_size: None },
        count: None,
    }
}
