"""The programs that run beside user code: the kernel zygote and its kernels.

These modules run under the template's own interpreter: beside each other they import the standard library, IPython and
sandmesh.shared.frames only.
"""
