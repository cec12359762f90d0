package cri

import (
	"context"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Tell is told of a call to the runtime by its CRI name, such as RunPodSandbox, once it has ended. It is called concurrently
// and must not block.
type Tell func(method string, took time.Duration, err error)

// Told wraps a runtime so that tell hears of every call. Of a stream it hears how the stream was opened.
func Told(r runtimeapi.RuntimeServiceClient, i runtimeapi.ImageServiceClient, tell Tell) (runtimeapi.RuntimeServiceClient, runtimeapi.ImageServiceClient) {
	return &toldRuntime{r, tell}, &toldImages{i, tell}
}

// told makes one call and tells of it.
func told[Q, S any](ctx context.Context, tell Tell, method string, call func(context.Context, Q, ...grpc.CallOption) (S, error), in Q, opts []grpc.CallOption) (S, error) {
	began := time.Now()
	out, err := call(ctx, in, opts...)
	tell(method, time.Since(began), err)
	return out, err
}

// The ports name every call themselves, without the interface embedded: one that comes with a newer CRI does not compile
// until it is told of too.
type (
	toldRuntime struct {
		to   runtimeapi.RuntimeServiceClient
		tell Tell
	}
	toldImages struct {
		to   runtimeapi.ImageServiceClient
		tell Tell
	}
)

var (
	_ runtimeapi.RuntimeServiceClient = (*toldRuntime)(nil)
	_ runtimeapi.ImageServiceClient   = (*toldImages)(nil)
)

// Version calls the runtime.
func (t *toldRuntime) Version(ctx context.Context, in *runtimeapi.VersionRequest, opts ...grpc.CallOption) (*runtimeapi.VersionResponse, error) {
	return told(ctx, t.tell, "Version", t.to.Version, in, opts)
}

// RunPodSandbox calls the runtime.
func (t *toldRuntime) RunPodSandbox(ctx context.Context, in *runtimeapi.RunPodSandboxRequest, opts ...grpc.CallOption) (*runtimeapi.RunPodSandboxResponse, error) {
	return told(ctx, t.tell, "RunPodSandbox", t.to.RunPodSandbox, in, opts)
}

// StopPodSandbox calls the runtime.
func (t *toldRuntime) StopPodSandbox(ctx context.Context, in *runtimeapi.StopPodSandboxRequest, opts ...grpc.CallOption) (*runtimeapi.StopPodSandboxResponse, error) {
	return told(ctx, t.tell, "StopPodSandbox", t.to.StopPodSandbox, in, opts)
}

// RemovePodSandbox calls the runtime.
func (t *toldRuntime) RemovePodSandbox(ctx context.Context, in *runtimeapi.RemovePodSandboxRequest, opts ...grpc.CallOption) (*runtimeapi.RemovePodSandboxResponse, error) {
	return told(ctx, t.tell, "RemovePodSandbox", t.to.RemovePodSandbox, in, opts)
}

// PodSandboxStatus calls the runtime.
func (t *toldRuntime) PodSandboxStatus(ctx context.Context, in *runtimeapi.PodSandboxStatusRequest, opts ...grpc.CallOption) (*runtimeapi.PodSandboxStatusResponse, error) {
	return told(ctx, t.tell, "PodSandboxStatus", t.to.PodSandboxStatus, in, opts)
}

// ListPodSandbox calls the runtime.
func (t *toldRuntime) ListPodSandbox(ctx context.Context, in *runtimeapi.ListPodSandboxRequest, opts ...grpc.CallOption) (*runtimeapi.ListPodSandboxResponse, error) {
	return told(ctx, t.tell, "ListPodSandbox", t.to.ListPodSandbox, in, opts)
}

// StreamPodSandboxes calls the runtime.
func (t *toldRuntime) StreamPodSandboxes(ctx context.Context, in *runtimeapi.StreamPodSandboxesRequest, opts ...grpc.CallOption) (grpc.ServerStreamingClient[runtimeapi.StreamPodSandboxesResponse], error) {
	return told(ctx, t.tell, "StreamPodSandboxes", t.to.StreamPodSandboxes, in, opts)
}

// CreateContainer calls the runtime.
func (t *toldRuntime) CreateContainer(ctx context.Context, in *runtimeapi.CreateContainerRequest, opts ...grpc.CallOption) (*runtimeapi.CreateContainerResponse, error) {
	return told(ctx, t.tell, "CreateContainer", t.to.CreateContainer, in, opts)
}

// StartContainer calls the runtime.
func (t *toldRuntime) StartContainer(ctx context.Context, in *runtimeapi.StartContainerRequest, opts ...grpc.CallOption) (*runtimeapi.StartContainerResponse, error) {
	return told(ctx, t.tell, "StartContainer", t.to.StartContainer, in, opts)
}

// StopContainer calls the runtime.
func (t *toldRuntime) StopContainer(ctx context.Context, in *runtimeapi.StopContainerRequest, opts ...grpc.CallOption) (*runtimeapi.StopContainerResponse, error) {
	return told(ctx, t.tell, "StopContainer", t.to.StopContainer, in, opts)
}

// RemoveContainer calls the runtime.
func (t *toldRuntime) RemoveContainer(ctx context.Context, in *runtimeapi.RemoveContainerRequest, opts ...grpc.CallOption) (*runtimeapi.RemoveContainerResponse, error) {
	return told(ctx, t.tell, "RemoveContainer", t.to.RemoveContainer, in, opts)
}

// ListContainers calls the runtime.
func (t *toldRuntime) ListContainers(ctx context.Context, in *runtimeapi.ListContainersRequest, opts ...grpc.CallOption) (*runtimeapi.ListContainersResponse, error) {
	return told(ctx, t.tell, "ListContainers", t.to.ListContainers, in, opts)
}

// StreamContainers calls the runtime.
func (t *toldRuntime) StreamContainers(ctx context.Context, in *runtimeapi.StreamContainersRequest, opts ...grpc.CallOption) (grpc.ServerStreamingClient[runtimeapi.StreamContainersResponse], error) {
	return told(ctx, t.tell, "StreamContainers", t.to.StreamContainers, in, opts)
}

// ContainerStatus calls the runtime.
func (t *toldRuntime) ContainerStatus(ctx context.Context, in *runtimeapi.ContainerStatusRequest, opts ...grpc.CallOption) (*runtimeapi.ContainerStatusResponse, error) {
	return told(ctx, t.tell, "ContainerStatus", t.to.ContainerStatus, in, opts)
}

// UpdateContainerResources calls the runtime.
func (t *toldRuntime) UpdateContainerResources(ctx context.Context, in *runtimeapi.UpdateContainerResourcesRequest, opts ...grpc.CallOption) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	return told(ctx, t.tell, "UpdateContainerResources", t.to.UpdateContainerResources, in, opts)
}

// ReopenContainerLog calls the runtime.
func (t *toldRuntime) ReopenContainerLog(ctx context.Context, in *runtimeapi.ReopenContainerLogRequest, opts ...grpc.CallOption) (*runtimeapi.ReopenContainerLogResponse, error) {
	return told(ctx, t.tell, "ReopenContainerLog", t.to.ReopenContainerLog, in, opts)
}

// ExecSync calls the runtime.
func (t *toldRuntime) ExecSync(ctx context.Context, in *runtimeapi.ExecSyncRequest, opts ...grpc.CallOption) (*runtimeapi.ExecSyncResponse, error) {
	return told(ctx, t.tell, "ExecSync", t.to.ExecSync, in, opts)
}

// Exec calls the runtime.
func (t *toldRuntime) Exec(ctx context.Context, in *runtimeapi.ExecRequest, opts ...grpc.CallOption) (*runtimeapi.ExecResponse, error) {
	return told(ctx, t.tell, "Exec", t.to.Exec, in, opts)
}

// Attach calls the runtime.
func (t *toldRuntime) Attach(ctx context.Context, in *runtimeapi.AttachRequest, opts ...grpc.CallOption) (*runtimeapi.AttachResponse, error) {
	return told(ctx, t.tell, "Attach", t.to.Attach, in, opts)
}

// PortForward calls the runtime.
func (t *toldRuntime) PortForward(ctx context.Context, in *runtimeapi.PortForwardRequest, opts ...grpc.CallOption) (*runtimeapi.PortForwardResponse, error) {
	return told(ctx, t.tell, "PortForward", t.to.PortForward, in, opts)
}

// ContainerStats calls the runtime.
func (t *toldRuntime) ContainerStats(ctx context.Context, in *runtimeapi.ContainerStatsRequest, opts ...grpc.CallOption) (*runtimeapi.ContainerStatsResponse, error) {
	return told(ctx, t.tell, "ContainerStats", t.to.ContainerStats, in, opts)
}

// ListContainerStats calls the runtime.
func (t *toldRuntime) ListContainerStats(ctx context.Context, in *runtimeapi.ListContainerStatsRequest, opts ...grpc.CallOption) (*runtimeapi.ListContainerStatsResponse, error) {
	return told(ctx, t.tell, "ListContainerStats", t.to.ListContainerStats, in, opts)
}

// StreamContainerStats calls the runtime.
func (t *toldRuntime) StreamContainerStats(ctx context.Context, in *runtimeapi.StreamContainerStatsRequest, opts ...grpc.CallOption) (grpc.ServerStreamingClient[runtimeapi.StreamContainerStatsResponse], error) {
	return told(ctx, t.tell, "StreamContainerStats", t.to.StreamContainerStats, in, opts)
}

// PodSandboxStats calls the runtime.
func (t *toldRuntime) PodSandboxStats(ctx context.Context, in *runtimeapi.PodSandboxStatsRequest, opts ...grpc.CallOption) (*runtimeapi.PodSandboxStatsResponse, error) {
	return told(ctx, t.tell, "PodSandboxStats", t.to.PodSandboxStats, in, opts)
}

// ListPodSandboxStats calls the runtime.
func (t *toldRuntime) ListPodSandboxStats(ctx context.Context, in *runtimeapi.ListPodSandboxStatsRequest, opts ...grpc.CallOption) (*runtimeapi.ListPodSandboxStatsResponse, error) {
	return told(ctx, t.tell, "ListPodSandboxStats", t.to.ListPodSandboxStats, in, opts)
}

// StreamPodSandboxStats calls the runtime.
func (t *toldRuntime) StreamPodSandboxStats(ctx context.Context, in *runtimeapi.StreamPodSandboxStatsRequest, opts ...grpc.CallOption) (grpc.ServerStreamingClient[runtimeapi.StreamPodSandboxStatsResponse], error) {
	return told(ctx, t.tell, "StreamPodSandboxStats", t.to.StreamPodSandboxStats, in, opts)
}

// UpdateRuntimeConfig calls the runtime.
func (t *toldRuntime) UpdateRuntimeConfig(ctx context.Context, in *runtimeapi.UpdateRuntimeConfigRequest, opts ...grpc.CallOption) (*runtimeapi.UpdateRuntimeConfigResponse, error) {
	return told(ctx, t.tell, "UpdateRuntimeConfig", t.to.UpdateRuntimeConfig, in, opts)
}

// Status calls the runtime.
func (t *toldRuntime) Status(ctx context.Context, in *runtimeapi.StatusRequest, opts ...grpc.CallOption) (*runtimeapi.StatusResponse, error) {
	return told(ctx, t.tell, "Status", t.to.Status, in, opts)
}

// CheckpointContainer calls the runtime.
func (t *toldRuntime) CheckpointContainer(ctx context.Context, in *runtimeapi.CheckpointContainerRequest, opts ...grpc.CallOption) (*runtimeapi.CheckpointContainerResponse, error) {
	return told(ctx, t.tell, "CheckpointContainer", t.to.CheckpointContainer, in, opts)
}

// GetContainerEvents calls the runtime.
func (t *toldRuntime) GetContainerEvents(ctx context.Context, in *runtimeapi.GetEventsRequest, opts ...grpc.CallOption) (grpc.ServerStreamingClient[runtimeapi.ContainerEventResponse], error) {
	return told(ctx, t.tell, "GetContainerEvents", t.to.GetContainerEvents, in, opts)
}

// ListMetricDescriptors calls the runtime.
func (t *toldRuntime) ListMetricDescriptors(ctx context.Context, in *runtimeapi.ListMetricDescriptorsRequest, opts ...grpc.CallOption) (*runtimeapi.ListMetricDescriptorsResponse, error) {
	return told(ctx, t.tell, "ListMetricDescriptors", t.to.ListMetricDescriptors, in, opts)
}

// ListPodSandboxMetrics calls the runtime.
func (t *toldRuntime) ListPodSandboxMetrics(ctx context.Context, in *runtimeapi.ListPodSandboxMetricsRequest, opts ...grpc.CallOption) (*runtimeapi.ListPodSandboxMetricsResponse, error) {
	return told(ctx, t.tell, "ListPodSandboxMetrics", t.to.ListPodSandboxMetrics, in, opts)
}

// StreamPodSandboxMetrics calls the runtime.
func (t *toldRuntime) StreamPodSandboxMetrics(ctx context.Context, in *runtimeapi.StreamPodSandboxMetricsRequest, opts ...grpc.CallOption) (grpc.ServerStreamingClient[runtimeapi.StreamPodSandboxMetricsResponse], error) {
	return told(ctx, t.tell, "StreamPodSandboxMetrics", t.to.StreamPodSandboxMetrics, in, opts)
}

// RuntimeConfig calls the runtime.
func (t *toldRuntime) RuntimeConfig(ctx context.Context, in *runtimeapi.RuntimeConfigRequest, opts ...grpc.CallOption) (*runtimeapi.RuntimeConfigResponse, error) {
	return told(ctx, t.tell, "RuntimeConfig", t.to.RuntimeConfig, in, opts)
}

// UpdatePodSandboxResources calls the runtime.
func (t *toldRuntime) UpdatePodSandboxResources(ctx context.Context, in *runtimeapi.UpdatePodSandboxResourcesRequest, opts ...grpc.CallOption) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	return told(ctx, t.tell, "UpdatePodSandboxResources", t.to.UpdatePodSandboxResources, in, opts)
}

// ListImages calls the runtime.
func (t *toldImages) ListImages(ctx context.Context, in *runtimeapi.ListImagesRequest, opts ...grpc.CallOption) (*runtimeapi.ListImagesResponse, error) {
	return told(ctx, t.tell, "ListImages", t.to.ListImages, in, opts)
}

// StreamImages calls the runtime.
func (t *toldImages) StreamImages(ctx context.Context, in *runtimeapi.StreamImagesRequest, opts ...grpc.CallOption) (grpc.ServerStreamingClient[runtimeapi.StreamImagesResponse], error) {
	return told(ctx, t.tell, "StreamImages", t.to.StreamImages, in, opts)
}

// ImageStatus calls the runtime.
func (t *toldImages) ImageStatus(ctx context.Context, in *runtimeapi.ImageStatusRequest, opts ...grpc.CallOption) (*runtimeapi.ImageStatusResponse, error) {
	return told(ctx, t.tell, "ImageStatus", t.to.ImageStatus, in, opts)
}

// PullImage calls the runtime.
func (t *toldImages) PullImage(ctx context.Context, in *runtimeapi.PullImageRequest, opts ...grpc.CallOption) (*runtimeapi.PullImageResponse, error) {
	return told(ctx, t.tell, "PullImage", t.to.PullImage, in, opts)
}

// RemoveImage calls the runtime.
func (t *toldImages) RemoveImage(ctx context.Context, in *runtimeapi.RemoveImageRequest, opts ...grpc.CallOption) (*runtimeapi.RemoveImageResponse, error) {
	return told(ctx, t.tell, "RemoveImage", t.to.RemoveImage, in, opts)
}

// ImageFsInfo calls the runtime.
func (t *toldImages) ImageFsInfo(ctx context.Context, in *runtimeapi.ImageFsInfoRequest, opts ...grpc.CallOption) (*runtimeapi.ImageFsInfoResponse, error) {
	return told(ctx, t.tell, "ImageFsInfo", t.to.ImageFsInfo, in, opts)
}
