package stats

// The upper bounds of the buckets of histograms, in order. All agents of a process share them.
var (
	podStartBuckets = []float64{0.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600}
	statusBuckets   = []float64{0.01, 0.05, 0.1, 0.5, 1, 5, 10, 20, 30, 45, 60}
	pullBuckets     = []float64{1, 5, 10, 20, 30, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600}
	lateBuckets     = []float64{0.01, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60} // of probes
	countBuckets    = []float64{1, 2, 4, 8, 16}                                  // of containers
	resizeBuckets   = []float64{10, 50, 100, 500, 1000, 2000, 5000, 10000, 20000, 30000, 60000, 120000, 300000, 600000}
	volumeBuckets   = []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600}

	// callBuckets are for calls to the runtime: each bound is 2.5 times the one before.
	callBuckets = []float64{
		.005, .0125, .03125, .078125, .1953125, .48828125, 1.220703125, 3.0517578125, 7.62939453125, 19.073486328125, 47.6837158203125,
		119.20928955078125, 298.0232238769531, 745.0580596923828,
	}

	// The following are for requests to the API server, for what the agent asks it about clients, for the bodies of both, and for the age of
	// certificates.
	requestBuckets = []float64{0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60}
	reviewBuckets  = []float64{0.25, 0.5, 0.7, 1, 1.5, 3, 5, 10}
	sizeBuckets    = []float64{64, 256, 512, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216}
	ageBuckets     = []float64{60, 3600, 14400, 86400, 604800, 2592000, 7776000, 15552000, 31104000, 124416000}
)
