package simcsi

import "github.com/container-storage-interface/spec/lib/go/csi"

// lastRequests are the last requests of their kinds.
type lastRequests struct {
	stage   *csi.NodeStageVolumeRequest
	publish *csi.NodePublishVolumeRequest
	expand  *csi.NodeExpandVolumeRequest
}

func (d *Driver) lastOnes() lastRequests {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.last
}

// LastStage returns the last request to stage a volume.
func (d *Driver) LastStage() *csi.NodeStageVolumeRequest { return d.lastOnes().stage }

// LastPublish returns the last request to publish a volume.
func (d *Driver) LastPublish() *csi.NodePublishVolumeRequest { return d.lastOnes().publish }

// LastExpand returns the last request to expand a volume.
func (d *Driver) LastExpand() *csi.NodeExpandVolumeRequest { return d.lastOnes().expand }
