"""What every sandbox has beside user code: its init, the zygote and the walls between them."""
