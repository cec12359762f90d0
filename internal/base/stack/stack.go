package stack

// room is how many bytes Grow makes room for. The runtime then takes a stack of 16 KiB, the largest size of which it keeps some ready.
const room = 9 << 10

// Grow makes the stack of the calling goroutine 16 KiB large, if it is smaller. It is called first in a goroutine that goes deep, while there is
// nothing on its stack that has to be moved. The stack stays large until a garbage collection finds that the goroutine uses less than a quarter
// of it, so a goroutine that waits for long should not call Grow.
//
//go:noinline
func Grow() { touch(0) }

// touch has a frame of the size room. The index keeps the compiler from leaving the array out.
//
//go:noinline
func touch(i int) byte {
	var frame [room]byte
	frame[i%room] = 1
	return frame[(i+1)%room]
}
