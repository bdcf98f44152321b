"""What runs beside user code: the kernel zygote and its kernels.

These modules run under the template's own interpreter: they import the standard library, IPython and each other only.
"""
