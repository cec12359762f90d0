package fleettop

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/wherry-node/wherry/internal/cli/fleetctl"
	"github.com/wherry-node/wherry/internal/cli/screen"
	"github.com/wherry-node/wherry/internal/proof/termsvg"
)

// TestPicture writes docs/fleet-top.svg: the screen of a fleet that runs, after it was followed for WHERRY_PICTURE_FOR (a duration). It runs only
// if WHERRY_PICTURES names a directory; WHERRY_PICTURE_SOCKET is the socket of the fleet:
//
//	WHERRY_PICTURES=$PWD/docs WHERRY_PICTURE_SOCKET=/tmp/fleet.sock WHERRY_PICTURE_FOR=45s go test ./internal/cli/fleettop -run TestPicture -count=1
func TestPicture(t *testing.T) { //nolint:paralleltest // it waits for a fleet of another process
	dir := os.Getenv("WHERRY_PICTURES")
	if dir == "" {
		t.Skip("WHERRY_PICTURES names no directory")
	}
	last, err := time.ParseDuration(os.Getenv("WHERRY_PICTURE_FOR"))
	if err != nil {
		t.Fatal(err)
	}
	top := Top{Client: fleetctl.Client{Socket: os.Getenv("WHERRY_PICTURE_SOCKET")}}
	v := &View{Mode: screen.Mode{Colour: true}, Size: screen.Size{Columns: 100, Rows: 30}, Past: &History{}, Every: time.Second}
	for end := time.Now().Add(last); time.Now().Before(end); time.Sleep(v.Every) {
		now, err := top.watch(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		v.Now = &now
		v.Past.Add(&now.State)
	}
	lines, _ := Draw(v)
	svg, err := termsvg.SVG(v.Mode.Encode(lines, v.Size), v.Size.Columns, v.Size.Rows, "wherry fleet top: the live view of a fleet, with a fault that is active")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "fleet-top.svg"), []byte(svg), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
