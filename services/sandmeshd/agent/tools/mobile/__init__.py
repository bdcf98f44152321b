"""The Android device of a sandbox, by the program adb."""
