package volume

// OwnDiskForTest returns the disk of this machine.
func OwnDiskForTest() Disk { return ownDisk{} }
