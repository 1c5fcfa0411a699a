"""What operators run against an installation: doctor, uninstall, scheduler-config."""
