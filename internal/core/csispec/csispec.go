package csispec

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Capabilities are the optional features of a driver's node service that matter to the agent.
type Capabilities struct {
	// Stage: a volume is staged once per node before it is published to pods.
	Stage bool
	// MountGroup: the driver itself sets the group of a volume to the pod's fsGroup.
	MountGroup bool
	// SingleNodeMultiWriter: the driver knows the access modes for one writer and for several writers on one node.
	SingleNodeMultiWriter bool
	// Stats: the driver can say how full a volume is.
	Stats bool
	// Condition: the driver can say whether a volume works.
	Condition bool
	// Expand: the node has to call the driver when a volume grows.
	Expand bool
}

// CapabilitiesOf reads the capabilities from a driver's answer. It ignores all others.
func CapabilitiesOf(list []*csi.NodeServiceCapability) (c Capabilities) {
	for _, one := range list {
		switch one.GetRpc().GetType() {
		case csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME:
			c.Stage = true
		case csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP:
			c.MountGroup = true
		case csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER:
			c.SingleNodeMultiWriter = true
		case csi.NodeServiceCapability_RPC_GET_VOLUME_STATS:
			c.Stats = true
		case csi.NodeServiceCapability_RPC_VOLUME_CONDITION:
			c.Condition = true
		case csi.NodeServiceCapability_RPC_EXPAND_VOLUME:
			c.Expand = true
		}
	}
	return c
}

// Input describes a CSI volume and how one pod uses it. The requests to the driver are made from it.
type Input struct {
	Pod *v1.Pod
	// PV is the persistent volume; nil: the volume is Inline.
	PV     *v1.PersistentVolume
	Inline *v1.CSIVolumeSource
	// Claim is the claim that is bound to PV; nil for an Inline volume.
	Claim *v1.PersistentVolumeClaim
	// Driver is the CSIDriver object. It is nil if the cluster has none; then the defaults of its fields apply.
	Driver *storagev1.CSIDriver
	Can    Capabilities
	// Handle is the name by which the driver knows the volume. For an inline volume it is the result of InlineHandle.
	Handle   string
	ReadOnly bool
	// Block: the volume is a block device.
	Block bool
	// PublishContext describes the attached volume; the driver's controller wrote it into the VolumeAttachment.
	PublishContext map[string]string
	Secrets        map[string]string
	// SELinux is the SELinux label with which the volume is mounted; "": it is mounted without one.
	SELinux string
	// Tokens contains the tokens that the driver's CSIDriver object asks for, as JSON text; "": it asks for none.
	Tokens string
	// StagingPath is empty if the volume is not staged.
	StagingPath, TargetPath string
}

// attributeTokens is the key, in the volume context or in the secrets, under which a driver gets tokens of the pod's service account.
const attributeTokens = "csi.storage.k8s.io/serviceAccount.tokens"

// Stage returns the request that stages a persistent volume.
func Stage(in *Input) *csi.NodeStageVolumeRequest {
	return &csi.NodeStageVolumeRequest{
		VolumeId: in.Handle, PublishContext: in.PublishContext, StagingTargetPath: in.StagingPath, VolumeCapability: capability(in, in.mountGroup()),
		Secrets: in.Secrets, VolumeContext: in.PV.Spec.CSI.VolumeAttributes,
	}
}

// Publish returns the request that makes a volume visible to a pod.
func Publish(in *Input) *csi.NodePublishVolumeRequest {
	attributes, secrets := map[string]string{}, map[string]string{}
	if in.PV != nil {
		maps.Copy(attributes, in.PV.Spec.CSI.VolumeAttributes)
	} else {
		maps.Copy(attributes, in.Inline.VolumeAttributes)
	}
	maps.Copy(secrets, in.Secrets)
	if d := in.Driver; d != nil && d.Spec.PodInfoOnMount != nil && *d.Spec.PodInfoOnMount {
		p := in.Pod
		maps.Copy(attributes, map[string]string{
			"csi.storage.k8s.io/pod.name": p.Name, "csi.storage.k8s.io/pod.namespace": p.Namespace, "csi.storage.k8s.io/pod.uid": string(p.UID),
			"csi.storage.k8s.io/serviceAccount.name": p.Spec.ServiceAccountName, "csi.storage.k8s.io/ephemeral": strconv.FormatBool(in.PV == nil),
		})
	}
	switch {
	case in.Tokens == "":
	case in.Driver.Spec.ServiceAccountTokenInSecrets != nil && *in.Driver.Spec.ServiceAccountTokenInSecrets:
		secrets[attributeTokens] = in.Tokens
	default:
		attributes[attributeTokens] = in.Tokens
	}
	return &csi.NodePublishVolumeRequest{
		VolumeId: in.Handle, PublishContext: in.PublishContext, StagingTargetPath: in.StagingPath, TargetPath: in.TargetPath,
		VolumeCapability: capability(in, in.mountGroup()), Readonly: in.ReadOnly, Secrets: secrets, VolumeContext: attributes,
	}
}

// capability returns the access type and access mode that a request names for a volume. group is the fsGroup that the driver itself has
// to set, or "".
func capability(in *Input, group string) *csi.VolumeCapability {
	mount := &csi.VolumeCapability_MountVolume{FsType: in.fsType(), VolumeMountGroup: group}
	mode := v1.ReadWriteOnce
	if in.PV != nil {
		mount.MountFlags = MountOptions(in.PV, in.SELinux)
		if modes := in.PV.Spec.AccessModes; len(modes) > 0 {
			mode = modes[0]
		}
	}
	out := &csi.VolumeCapability{AccessMode: &csi.VolumeCapability_AccessMode{Mode: accessMode(mode, in.Can.SingleNodeMultiWriter)}}
	if in.Block {
		out.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
	} else {
		out.AccessType = &csi.VolumeCapability_Mount{Mount: mount}
	}
	return out
}

// MountOptions returns the options with which a persistent volume is mounted. label is its SELinux label, or "". The option of the label is
// quoted, because a label may contain a comma.
func MountOptions(pv *v1.PersistentVolume, label string) []string {
	options := pv.Spec.MountOptions
	if label == "" {
		return options
	}
	return append(options[:len(options):len(options)], fmt.Sprintf("context=%q", label))
}

func (in *Input) fsType() string {
	switch {
	case in.PV != nil:
		return in.PV.Spec.CSI.FSType
	case in.Inline.FSType != nil:
		return *in.Inline.FSType
	}
	return ""
}

func (in *Input) group() *int64 {
	if sc := in.Pod.Spec.SecurityContext; sc != nil {
		return sc.FSGroup
	}
	return nil
}

// mountGroup returns the fsGroup that the driver itself has to set, or "".
func (in *Input) mountGroup() string {
	if group := in.group(); group != nil && in.Can.MountGroup {
		return strconv.FormatInt(*group, 10)
	}
	return ""
}

// accessMode converts an access mode. A driver that does not know SINGLE_NODE_MULTI_WRITER gets SINGLE_NODE_WRITER for both access
// modes that concern a single node.
func accessMode(mode v1.PersistentVolumeAccessMode, multiWriter bool) csi.VolumeCapability_AccessMode_Mode {
	switch mode {
	case v1.ReadWriteOnce:
		if multiWriter {
			return csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER
		}
		return csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
	case v1.ReadWriteOncePod:
		if multiWriter {
			return csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
		}
		return csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
	case v1.ReadOnlyMany:
		return csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
	case v1.ReadWriteMany:
		return csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	}
	return csi.VolumeCapability_AccessMode_UNKNOWN
}

// AgentSetsGroup reports whether the agent has to set the group of the published volume to the pod's fsGroup. A driver with the capability
// MountGroup does this itself. For any other driver, fsGroupPolicy of its CSIDriver object decides.
func AgentSetsGroup(in *Input) bool {
	if in.group() == nil || in.Can.MountGroup || in.ReadOnly {
		return false
	}
	policy := storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy
	if in.Driver != nil && in.Driver.Spec.FSGroupPolicy != nil {
		policy = *in.Driver.Spec.FSGroupPolicy
	}
	switch policy {
	case storagev1.NoneFSGroupPolicy:
		return false
	case storagev1.FileFSGroupPolicy:
		return true
	case storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy:
	}
	if in.fsType() == "" {
		return false
	}
	return in.PV == nil || slices.Contains(in.PV.Spec.AccessModes, v1.ReadWriteOnce) || slices.Contains(in.PV.Spec.AccessModes, v1.ReadWriteOncePod)
}

// NeedsAttach reports whether a volume of the driver has to be attached to the node before it is mounted. That is so unless the CSIDriver
// object says no.
func NeedsAttach(d *storagev1.CSIDriver) bool {
	return d == nil || d.Spec.AttachRequired == nil || *d.Spec.AttachRequired
}

// CheckMode returns an error unless the CSIDriver object says that the driver offers persistent volumes or, if inline is true, inline
// volumes (mode Ephemeral). d may be nil, if the driver has no such object: it then offers persistent volumes only.
func CheckMode(d *storagev1.CSIDriver, driver string, inline bool) error {
	if !inline && d == nil {
		return nil
	}
	want, what := storagev1.VolumeLifecyclePersistent, "persistent volumes"
	if inline {
		want, what = storagev1.VolumeLifecycleEphemeral, "inline volumes"
	}
	if d == nil {
		return fmt.Errorf("CSI driver %s has no CSIDriver object, so it offers no %s: create the object with volumeLifecycleModes: [%s]", driver, what, want)
	}
	modes := d.Spec.VolumeLifecycleModes
	if slices.Contains(modes, want) || len(modes) == 0 && !inline {
		return nil
	}
	return fmt.Errorf("CSI driver %s offers no %s: its CSIDriver object does not name %s in volumeLifecycleModes", driver, what, want)
}

// InlineHandle returns the handle by which the driver knows an inline volume of a pod.
func InlineHandle(pod types.UID, volume string) string {
	return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(string(pod)+volume)))
}

// Attachment returns the name of the VolumeAttachment object of a volume on a node.
func Attachment(handle, driver, node string) string {
	return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(handle+driver+node)))
}

// UniqueName returns the name of a volume in the status of nodes.
func UniqueName(driver, handle string) v1.UniqueVolumeName {
	return v1.UniqueVolumeName("kubernetes.io/csi/" + driver + "^" + handle)
}

// StagingDir returns the name of the directory of a staged volume, in the directory of its driver.
func StagingDir(handle string) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(handle)))
}
