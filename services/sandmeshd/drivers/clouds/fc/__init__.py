"""The fc driver: sessions of functions of Alibaba Cloud's Function Compute."""
