package cri

import (
	"context"
	"errors"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// OnCall is called after each call of the runtime. method is the CRI name of the call, such as RunPodSandbox. It is called
// concurrently and must not block.
type OnCall func(method string, took time.Duration, err error)

// BeginCall is called before each call of the runtime and returns the context for it, and a function that is called with its result.
// It is called concurrently and must not block.
type BeginCall func(ctx context.Context, method string) (context.Context, func(error))

// Metered wraps a runtime and calls begin before every call, if begin is not nil, and onCall after it. If a call opens a
// stream, its result and its duration are those of opening the stream.
func Metered(r runtimeapi.RuntimeServiceClient, i runtimeapi.ImageServiceClient, onCall OnCall, begin BeginCall) (runtimeapi.RuntimeServiceClient, runtimeapi.ImageServiceClient) {
	m := &callMeter{onCall, begin}
	return &meteredRuntime{r, m}, &meteredImages{i, m}
}

type callMeter struct {
	onCall OnCall
	begin  BeginCall
}

// metered makes one call and passes its result to m.
func metered[Q, S any](ctx context.Context, m *callMeter, method string, call func(context.Context, Q, ...grpc.CallOption) (S, error), in Q, opts []grpc.CallOption) (S, error) {
	began := time.Now()
	var ended func(error)
	if m.begin != nil {
		ctx, ended = m.begin(ctx, method)
	}
	out, err := call(ctx, in, opts...)
	err = overdue(ctx, err)
	if ended != nil {
		ended(err)
	}
	m.onCall(method, time.Since(began), err)
	return out, err
}

// overdue replaces the error of a call whose stream the runtime cut off at the call's deadline, by the error that says so. The runtime learns the
// deadline with the call, and its end of the stream can arrive before the agent's own timer fires.
func overdue(ctx context.Context, err error) error {
	deadline, ok := ctx.Deadline()
	if !ok || time.Now().Before(deadline) || errors.Is(ctx.Err(), context.Canceled) {
		return err
	}
	if st, ok := status.FromError(err); ok && strings.HasPrefix(st.Message(), cutOff) {
		return status.FromContextError(context.DeadlineExceeded).Err()
	}
	return err
}

// cutOff is the beginning of the message with which gRPC tells that the server has ended a stream without an answer.
const cutOff = "stream terminated by RST_STREAM"

// These types have a method for every call of CRI, and do not embed the interfaces of CRI. So if a newer CRI has another call, the types do
// not compile until somebody adds a method for that call.
type (
	meteredRuntime struct {
		to    runtimeapi.RuntimeServiceClient
		meter *callMeter
	}
	meteredImages struct {
		to    runtimeapi.ImageServiceClient
		meter *callMeter
	}
)

var (
	_ runtimeapi.RuntimeServiceClient = (*meteredRuntime)(nil)
	_ runtimeapi.ImageServiceClient   = (*meteredImages)(nil)
)

func (t *meteredRuntime) Version(ctx context.Context, in *runtimeapi.VersionRequest, opts ...grpc.CallOption) (*runtimeapi.VersionResponse, error) {
	return metered(ctx, t.meter, "Version", t.to.Version, in, opts)
}

func (t *meteredRuntime) RunPodSandbox(ctx context.Context, in *runtimeapi.RunPodSandboxRequest, opts ...grpc.CallOption) (*runtimeapi.RunPodSandboxResponse, error) {
	return metered(ctx, t.meter, "RunPodSandbox", t.to.RunPodSandbox, in, opts)
}

func (t *meteredRuntime) StopPodSandbox(ctx context.Context, in *runtimeapi.StopPodSandboxRequest, opts ...grpc.CallOption) (*runtimeapi.StopPodSandboxResponse, error) {
	return metered(ctx, t.meter, "StopPodSandbox", t.to.StopPodSandbox, in, opts)
}

func (t *meteredRuntime) RemovePodSandbox(ctx context.Context, in *runtimeapi.RemovePodSandboxRequest, opts ...grpc.CallOption) (*runtimeapi.RemovePodSandboxResponse, error) {
	return metered(ctx, t.meter, "RemovePodSandbox", t.to.RemovePodSandbox, in, opts)
}

func (t *meteredRuntime) PodSandboxStatus(ctx context.Context, in *runtimeapi.PodSandboxStatusRequest, opts ...grpc.CallOption) (*runtimeapi.PodSandboxStatusResponse, error) {
	return metered(ctx, t.meter, "PodSandboxStatus", t.to.PodSandboxStatus, in, opts)
}

func (t *meteredRuntime) ListPodSandbox(ctx context.Context, in *runtimeapi.ListPodSandboxRequest, opts ...grpc.CallOption) (*runtimeapi.ListPodSandboxResponse, error) {
	return metered(ctx, t.meter, "ListPodSandbox", t.to.ListPodSandbox, in, opts)
}

func (t *meteredRuntime) StreamPodSandboxes(ctx context.Context, in *runtimeapi.StreamPodSandboxesRequest, opts ...grpc.CallOption) (grpc.ServerStreamingClient[runtimeapi.StreamPodSandboxesResponse], error) {
	return metered(ctx, t.meter, "StreamPodSandboxes", t.to.StreamPodSandboxes, in, opts)
}

func (t *meteredRuntime) CreateContainer(ctx context.Context, in *runtimeapi.CreateContainerRequest, opts ...grpc.CallOption) (*runtimeapi.CreateContainerResponse, error) {
	return metered(ctx, t.meter, "CreateContainer", t.to.CreateContainer, in, opts)
}

func (t *meteredRuntime) StartContainer(ctx context.Context, in *runtimeapi.StartContainerRequest, opts ...grpc.CallOption) (*runtimeapi.StartContainerResponse, error) {
	return metered(ctx, t.meter, "StartContainer", t.to.StartContainer, in, opts)
}

func (t *meteredRuntime) StopContainer(ctx context.Context, in *runtimeapi.StopContainerRequest, opts ...grpc.CallOption) (*runtimeapi.StopContainerResponse, error) {
	return metered(ctx, t.meter, "StopContainer", t.to.StopContainer, in, opts)
}

func (t *meteredRuntime) RemoveContainer(ctx context.Context, in *runtimeapi.RemoveContainerRequest, opts ...grpc.CallOption) (*runtimeapi.RemoveContainerResponse, error) {
	return metered(ctx, t.meter, "RemoveContainer", t.to.RemoveContainer, in, opts)
}

func (t *meteredRuntime) ListContainers(ctx context.Context, in *runtimeapi.ListContainersRequest, opts ...grpc.CallOption) (*runtimeapi.ListContainersResponse, error) {
	return metered(ctx, t.meter, "ListContainers", t.to.ListContainers, in, opts)
}

func (t *meteredRuntime) StreamContainers(ctx context.Context, in *runtimeapi.StreamContainersRequest, opts ...grpc.CallOption) (grpc.ServerStreamingClient[runtimeapi.StreamContainersResponse], error) {
	return metered(ctx, t.meter, "StreamContainers", t.to.StreamContainers, in, opts)
}

func (t *meteredRuntime) ContainerStatus(ctx context.Context, in *runtimeapi.ContainerStatusRequest, opts ...grpc.CallOption) (*runtimeapi.ContainerStatusResponse, error) {
	return metered(ctx, t.meter, "ContainerStatus", t.to.ContainerStatus, in, opts)
}

func (t *meteredRuntime) UpdateContainerResources(ctx context.Context, in *runtimeapi.UpdateContainerResourcesRequest, opts ...grpc.CallOption) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	return metered(ctx, t.meter, "UpdateContainerResources", t.to.UpdateContainerResources, in, opts)
}

func (t *meteredRuntime) ReopenContainerLog(ctx context.Context, in *runtimeapi.ReopenContainerLogRequest, opts ...grpc.CallOption) (*runtimeapi.ReopenContainerLogResponse, error) {
	return metered(ctx, t.meter, "ReopenContainerLog", t.to.ReopenContainerLog, in, opts)
}

func (t *meteredRuntime) ExecSync(ctx context.Context, in *runtimeapi.ExecSyncRequest, opts ...grpc.CallOption) (*runtimeapi.ExecSyncResponse, error) {
	return metered(ctx, t.meter, "ExecSync", t.to.ExecSync, in, opts)
}

func (t *meteredRuntime) Exec(ctx context.Context, in *runtimeapi.ExecRequest, opts ...grpc.CallOption) (*runtimeapi.ExecResponse, error) {
	return metered(ctx, t.meter, "Exec", t.to.Exec, in, opts)
}

func (t *meteredRuntime) Attach(ctx context.Context, in *runtimeapi.AttachRequest, opts ...grpc.CallOption) (*runtimeapi.AttachResponse, error) {
	return metered(ctx, t.meter, "Attach", t.to.Attach, in, opts)
}

func (t *meteredRuntime) PortForward(ctx context.Context, in *runtimeapi.PortForwardRequest, opts ...grpc.CallOption) (*runtimeapi.PortForwardResponse, error) {
	return metered(ctx, t.meter, "PortForward", t.to.PortForward, in, opts)
}

func (t *meteredRuntime) ContainerStats(ctx context.Context, in *runtimeapi.ContainerStatsRequest, opts ...grpc.CallOption) (*runtimeapi.ContainerStatsResponse, error) {
	return metered(ctx, t.meter, "ContainerStats", t.to.ContainerStats, in, opts)
}

func (t *meteredRuntime) ListContainerStats(ctx context.Context, in *runtimeapi.ListContainerStatsRequest, opts ...grpc.CallOption) (*runtimeapi.ListContainerStatsResponse, error) {
	return metered(ctx, t.meter, "ListContainerStats", t.to.ListContainerStats, in, opts)
}

func (t *meteredRuntime) StreamContainerStats(ctx context.Context, in *runtimeapi.StreamContainerStatsRequest, opts ...grpc.CallOption) (grpc.ServerStreamingClient[runtimeapi.StreamContainerStatsResponse], error) {
	return metered(ctx, t.meter, "StreamContainerStats", t.to.StreamContainerStats, in, opts)
}

func (t *meteredRuntime) PodSandboxStats(ctx context.Context, in *runtimeapi.PodSandboxStatsRequest, opts ...grpc.CallOption) (*runtimeapi.PodSandboxStatsResponse, error) {
	return metered(ctx, t.meter, "PodSandboxStats", t.to.PodSandboxStats, in, opts)
}

func (t *meteredRuntime) ListPodSandboxStats(ctx context.Context, in *runtimeapi.ListPodSandboxStatsRequest, opts ...grpc.CallOption) (*runtimeapi.ListPodSandboxStatsResponse, error) {
	return metered(ctx, t.meter, "ListPodSandboxStats", t.to.ListPodSandboxStats, in, opts)
}

func (t *meteredRuntime) StreamPodSandboxStats(ctx context.Context, in *runtimeapi.StreamPodSandboxStatsRequest, opts ...grpc.CallOption) (grpc.ServerStreamingClient[runtimeapi.StreamPodSandboxStatsResponse], error) {
	return metered(ctx, t.meter, "StreamPodSandboxStats", t.to.StreamPodSandboxStats, in, opts)
}

func (t *meteredRuntime) UpdateRuntimeConfig(ctx context.Context, in *runtimeapi.UpdateRuntimeConfigRequest, opts ...grpc.CallOption) (*runtimeapi.UpdateRuntimeConfigResponse, error) {
	return metered(ctx, t.meter, "UpdateRuntimeConfig", t.to.UpdateRuntimeConfig, in, opts)
}

func (t *meteredRuntime) Status(ctx context.Context, in *runtimeapi.StatusRequest, opts ...grpc.CallOption) (*runtimeapi.StatusResponse, error) {
	return metered(ctx, t.meter, "Status", t.to.Status, in, opts)
}

func (t *meteredRuntime) CheckpointContainer(ctx context.Context, in *runtimeapi.CheckpointContainerRequest, opts ...grpc.CallOption) (*runtimeapi.CheckpointContainerResponse, error) {
	return metered(ctx, t.meter, "CheckpointContainer", t.to.CheckpointContainer, in, opts)
}

func (t *meteredRuntime) GetContainerEvents(ctx context.Context, in *runtimeapi.GetEventsRequest, opts ...grpc.CallOption) (grpc.ServerStreamingClient[runtimeapi.ContainerEventResponse], error) {
	return metered(ctx, t.meter, "GetContainerEvents", t.to.GetContainerEvents, in, opts)
}

func (t *meteredRuntime) ListMetricDescriptors(ctx context.Context, in *runtimeapi.ListMetricDescriptorsRequest, opts ...grpc.CallOption) (*runtimeapi.ListMetricDescriptorsResponse, error) {
	return metered(ctx, t.meter, "ListMetricDescriptors", t.to.ListMetricDescriptors, in, opts)
}

func (t *meteredRuntime) ListPodSandboxMetrics(ctx context.Context, in *runtimeapi.ListPodSandboxMetricsRequest, opts ...grpc.CallOption) (*runtimeapi.ListPodSandboxMetricsResponse, error) {
	return metered(ctx, t.meter, "ListPodSandboxMetrics", t.to.ListPodSandboxMetrics, in, opts)
}

func (t *meteredRuntime) StreamPodSandboxMetrics(ctx context.Context, in *runtimeapi.StreamPodSandboxMetricsRequest, opts ...grpc.CallOption) (grpc.ServerStreamingClient[runtimeapi.StreamPodSandboxMetricsResponse], error) {
	return metered(ctx, t.meter, "StreamPodSandboxMetrics", t.to.StreamPodSandboxMetrics, in, opts)
}

func (t *meteredRuntime) RuntimeConfig(ctx context.Context, in *runtimeapi.RuntimeConfigRequest, opts ...grpc.CallOption) (*runtimeapi.RuntimeConfigResponse, error) {
	return metered(ctx, t.meter, "RuntimeConfig", t.to.RuntimeConfig, in, opts)
}

func (t *meteredRuntime) UpdatePodSandboxResources(ctx context.Context, in *runtimeapi.UpdatePodSandboxResourcesRequest, opts ...grpc.CallOption) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	return metered(ctx, t.meter, "UpdatePodSandboxResources", t.to.UpdatePodSandboxResources, in, opts)
}

func (t *meteredImages) ListImages(ctx context.Context, in *runtimeapi.ListImagesRequest, opts ...grpc.CallOption) (*runtimeapi.ListImagesResponse, error) {
	return metered(ctx, t.meter, "ListImages", t.to.ListImages, in, opts)
}

func (t *meteredImages) StreamImages(ctx context.Context, in *runtimeapi.StreamImagesRequest, opts ...grpc.CallOption) (grpc.ServerStreamingClient[runtimeapi.StreamImagesResponse], error) {
	return metered(ctx, t.meter, "StreamImages", t.to.StreamImages, in, opts)
}

func (t *meteredImages) ImageStatus(ctx context.Context, in *runtimeapi.ImageStatusRequest, opts ...grpc.CallOption) (*runtimeapi.ImageStatusResponse, error) {
	return metered(ctx, t.meter, "ImageStatus", t.to.ImageStatus, in, opts)
}

func (t *meteredImages) PullImage(ctx context.Context, in *runtimeapi.PullImageRequest, opts ...grpc.CallOption) (*runtimeapi.PullImageResponse, error) {
	return metered(ctx, t.meter, "PullImage", t.to.PullImage, in, opts)
}

func (t *meteredImages) RemoveImage(ctx context.Context, in *runtimeapi.RemoveImageRequest, opts ...grpc.CallOption) (*runtimeapi.RemoveImageResponse, error) {
	return metered(ctx, t.meter, "RemoveImage", t.to.RemoveImage, in, opts)
}

func (t *meteredImages) ImageFsInfo(ctx context.Context, in *runtimeapi.ImageFsInfoRequest, opts ...grpc.CallOption) (*runtimeapi.ImageFsInfoResponse, error) {
	return metered(ctx, t.meter, "ImageFsInfo", t.to.ImageFsInfo, in, opts)
}
