"""The requirements of the suite, a module for each subject."""
