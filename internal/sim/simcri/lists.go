package simcri

import (
	"context"
	"slices"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The Stream methods return a list as a stream: in process as one answer, over gRPC as several answers, so that no message is too
// large.

// perAnswer is how many items one answer of a streamed list has.
const perAnswer = 500

// sendList sends the items of a list over gRPC. err is the error of the call that made the list; if it is not nil, sendList returns it.
func sendList[T, A any](items []T, err error, answer func([]T) *A, send func(*A) error) error {
	if err != nil {
		return err
	}
	for some := range slices.Chunk(items, perAnswer) {
		if err := send(answer(some)); err != nil {
			return err
		}
	}
	return nil
}

// listStream returns the items of a list as a stream in process. err is the error of the call that made the list; if it is not nil,
// listStream returns it.
func listStream[T, A any](ctx context.Context, items []T, err error, answer func([]T) *A) (grpc.ServerStreamingClient[A], error) {
	switch {
	case err != nil:
		return nil, err
	case len(items) == 0:
		return empty[A](ctx), nil
	}
	return once(ctx, answer(items)), nil
}

func streamPodSandboxes(items []*runtimeapi.PodSandbox) *runtimeapi.StreamPodSandboxesResponse {
	return &runtimeapi.StreamPodSandboxesResponse{PodSandboxes: items}
}

func (c *runtimeClient) StreamPodSandboxes(ctx context.Context, in *runtimeapi.StreamPodSandboxesRequest, _ ...grpc.CallOption) (grpc.ServerStreamingClient[runtimeapi.StreamPodSandboxesResponse], error) {
	resp, err := c.r.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: in.Filter})
	return listStream(ctx, resp.GetItems(), err, streamPodSandboxes)
}

// StreamPodSandboxes sends the result of ListPodSandbox in several messages, each with at most 500 sandboxes.
func (r *Runtime) StreamPodSandboxes(in *runtimeapi.StreamPodSandboxesRequest, stream grpc.ServerStreamingServer[runtimeapi.StreamPodSandboxesResponse]) error {
	resp, err := r.ListPodSandbox(stream.Context(), &runtimeapi.ListPodSandboxRequest{Filter: in.Filter})
	return sendList(resp.GetItems(), err, streamPodSandboxes, stream.Send)
}

func streamContainers(items []*runtimeapi.Container) *runtimeapi.StreamContainersResponse {
	return &runtimeapi.StreamContainersResponse{Containers: items}
}

func (c *runtimeClient) StreamContainers(ctx context.Context, in *runtimeapi.StreamContainersRequest, _ ...grpc.CallOption) (grpc.ServerStreamingClient[runtimeapi.StreamContainersResponse], error) {
	resp, err := c.r.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: in.Filter})
	return listStream(ctx, resp.GetContainers(), err, streamContainers)
}

// StreamContainers sends the result of ListContainers in several messages, each with at most 500 containers.
func (r *Runtime) StreamContainers(in *runtimeapi.StreamContainersRequest, stream grpc.ServerStreamingServer[runtimeapi.StreamContainersResponse]) error {
	resp, err := r.ListContainers(stream.Context(), &runtimeapi.ListContainersRequest{Filter: in.Filter})
	return sendList(resp.GetContainers(), err, streamContainers, stream.Send)
}

func streamContainerStats(items []*runtimeapi.ContainerStats) *runtimeapi.StreamContainerStatsResponse {
	return &runtimeapi.StreamContainerStatsResponse{ContainerStats: items}
}

func (c *runtimeClient) StreamContainerStats(ctx context.Context, in *runtimeapi.StreamContainerStatsRequest, _ ...grpc.CallOption) (grpc.ServerStreamingClient[runtimeapi.StreamContainerStatsResponse], error) {
	resp, err := c.r.ListContainerStats(ctx, &runtimeapi.ListContainerStatsRequest{Filter: in.Filter})
	return listStream(ctx, resp.GetStats(), err, streamContainerStats)
}

// StreamContainerStats sends the result of ListContainerStats in several messages, each with at most 500 containers.
func (r *Runtime) StreamContainerStats(in *runtimeapi.StreamContainerStatsRequest, stream grpc.ServerStreamingServer[runtimeapi.StreamContainerStatsResponse]) error {
	resp, err := r.ListContainerStats(stream.Context(), &runtimeapi.ListContainerStatsRequest{Filter: in.Filter})
	return sendList(resp.GetStats(), err, streamContainerStats, stream.Send)
}

func streamPodSandboxStats(items []*runtimeapi.PodSandboxStats) *runtimeapi.StreamPodSandboxStatsResponse {
	return &runtimeapi.StreamPodSandboxStatsResponse{PodSandboxStats: items}
}

func (c *runtimeClient) StreamPodSandboxStats(ctx context.Context, in *runtimeapi.StreamPodSandboxStatsRequest, _ ...grpc.CallOption) (grpc.ServerStreamingClient[runtimeapi.StreamPodSandboxStatsResponse], error) {
	resp, err := c.r.ListPodSandboxStats(ctx, &runtimeapi.ListPodSandboxStatsRequest{Filter: in.Filter})
	return listStream(ctx, resp.GetStats(), err, streamPodSandboxStats)
}

// StreamPodSandboxStats sends the result of ListPodSandboxStats in several messages, each with at most 500 sandboxes.
func (r *Runtime) StreamPodSandboxStats(in *runtimeapi.StreamPodSandboxStatsRequest, stream grpc.ServerStreamingServer[runtimeapi.StreamPodSandboxStatsResponse]) error {
	resp, err := r.ListPodSandboxStats(stream.Context(), &runtimeapi.ListPodSandboxStatsRequest{Filter: in.Filter})
	return sendList(resp.GetStats(), err, streamPodSandboxStats, stream.Send)
}

func streamPodSandboxMetrics(items []*runtimeapi.PodSandboxMetrics) *runtimeapi.StreamPodSandboxMetricsResponse {
	return &runtimeapi.StreamPodSandboxMetricsResponse{PodSandboxMetrics: items}
}

func (c *runtimeClient) StreamPodSandboxMetrics(ctx context.Context, _ *runtimeapi.StreamPodSandboxMetricsRequest, _ ...grpc.CallOption) (grpc.ServerStreamingClient[runtimeapi.StreamPodSandboxMetricsResponse], error) {
	resp, err := c.r.ListPodSandboxMetrics(ctx, &runtimeapi.ListPodSandboxMetricsRequest{})
	return listStream(ctx, resp.GetPodMetrics(), err, streamPodSandboxMetrics)
}

// StreamPodSandboxMetrics sends the result of ListPodSandboxMetrics in several messages, each with at most 500 sandboxes.
func (r *Runtime) StreamPodSandboxMetrics(_ *runtimeapi.StreamPodSandboxMetricsRequest, stream grpc.ServerStreamingServer[runtimeapi.StreamPodSandboxMetricsResponse]) error {
	resp, err := r.ListPodSandboxMetrics(stream.Context(), &runtimeapi.ListPodSandboxMetricsRequest{})
	return sendList(resp.GetPodMetrics(), err, streamPodSandboxMetrics, stream.Send)
}

func streamImages(items []*runtimeapi.Image) *runtimeapi.StreamImagesResponse {
	return &runtimeapi.StreamImagesResponse{Images: items}
}

func (c *imageClient) StreamImages(ctx context.Context, in *runtimeapi.StreamImagesRequest, _ ...grpc.CallOption) (grpc.ServerStreamingClient[runtimeapi.StreamImagesResponse], error) {
	resp, err := c.r.ListImages(ctx, &runtimeapi.ListImagesRequest{Filter: in.Filter})
	return listStream(ctx, resp.GetImages(), err, streamImages)
}

// StreamImages sends the result of ListImages in several messages, each with at most 500 images.
func (r *Runtime) StreamImages(in *runtimeapi.StreamImagesRequest, stream grpc.ServerStreamingServer[runtimeapi.StreamImagesResponse]) error {
	resp, err := r.ListImages(stream.Context(), &runtimeapi.ListImagesRequest{Filter: in.Filter})
	return sendList(resp.GetImages(), err, streamImages, stream.Send)
}
