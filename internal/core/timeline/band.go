package timeline

import (
	"fmt"
	"slices"
)

// Band is the state of a pod as a whole between two decisions. A diagram of the pod's life shows one stripe per band.
//
//	waiting ─► pulling ─► starting ─► running ◄─► ready ─► ending ─► ended
//	   ▲          │           │          │          │                failed
//	   │          ▼           ▼          ▼          ▼
//	   └────── failing ◄──────┴──────────┴──────────┘
type Band uint8

// These are the bands. Records that are not decisions have BandNone.
const (
	BandNone     Band = iota
	BandWaiting       // something has to happen before the pod goes on, and nothing has failed
	BandPulling       // an image is being pulled
	BandStarting      // volumes, sandbox, containers or init containers are being created or started
	BandRunning       // all containers run, and at least one is not ready
	BandReady         // all containers run and are ready
	BandFailing       // something has failed, and the pod waits for the next try
	BandEnding        // containers are being ended
	BandEnded         // nothing runs any more, and nothing has failed
	BandFailed        // nothing runs any more, and nothing is tried again
)

var bandNames = [...]string{"", "waiting", "pulling", "starting", "running", "ready", "failing", "ending", "ended", "failed"}

// String returns the name of a band, which is empty for BandNone.
func (b Band) String() string {
	if int(b) < len(bandNames) {
		return bandNames[b]
	}
	return fmt.Sprintf("band(%d)", b)
}

// MarshalText returns the name of the band, as String does.
func (b Band) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// UnmarshalText parses the name of a band. An unknown name, for example from a newer agent, becomes BandNone.
func (b *Band) UnmarshalText(text []byte) error {
	*b = Band(max(0, slices.Index(bandNames[:], string(text)))) //nolint:gosec // an index of ten words
	return nil
}
