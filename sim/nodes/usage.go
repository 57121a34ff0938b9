package nodes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Usage is what a process has used.
type Usage struct {
	CPU    time.Duration
	Memory int64 // resident, in bytes
}

// userHZ is how many of the kernel's ticks a second of CPU has, as /proc tells it on every architecture of Linux.
const userHZ = 100

// UsageOf reads what a process of this machine has used.
func UsageOf(pid int) (Usage, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Usage{}, fmt.Errorf("usage of process %d: %w", pid, err)
	}
	u, err := parseStat(text)
	if err != nil {
		return Usage{}, fmt.Errorf("usage of process %d: %w", pid, err)
	}
	return u, nil
}

// parseStat reads /proc/PID/stat (proc_pid_stat(5)).
func parseStat(text []byte) (Usage, error) {
	// The second field is a name in parentheses, which may have anything in it.
	end := bytes.LastIndexByte(text, ')')
	fields := bytes.Fields(text[end+1:])
	const utime, stime, rss = 14 - 3, 15 - 3, 24 - 3
	if end < 0 || len(fields) <= rss {
		return Usage{}, fmt.Errorf("/proc/PID/stat: %q", text)
	}
	var n [3]int64
	for i, at := range []int{utime, stime, rss} {
		var err error
		if n[i], err = strconv.ParseInt(string(fields[at]), 10, 64); err != nil {
			return Usage{}, fmt.Errorf("/proc/PID/stat: %w", err)
		}
	}
	return Usage{CPU: time.Duration(n[0]+n[1]) * time.Second / userHZ, Memory: n[2] * int64(os.Getpagesize())}, nil
}

// maxMetrics bounds what is read of a server's metrics.
const maxMetrics = 16 << 20

// UsageAt reads what a server says of itself in the metrics at a URL, in Prometheus' text format.
func UsageAt(ctx context.Context, url string) (Usage, error) {
	u, err := usageAt(ctx, url)
	if err != nil {
		return Usage{}, fmt.Errorf("usage at %s: %w", url, err)
	}
	return u, nil
}

func usageAt(ctx context.Context, url string) (Usage, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return Usage{}, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return Usage{}, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return Usage{}, errors.New(answer.Status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(io.LimitReader(answer.Body, maxMetrics))
	if err != nil {
		return Usage{}, err
	}
	cpu, memory := families["process_cpu_seconds_total"].GetMetric(), families["process_resident_memory_bytes"].GetMetric()
	if len(cpu) != 1 || len(memory) != 1 {
		return Usage{}, errors.New("there are no process_cpu_seconds_total and process_resident_memory_bytes")
	}
	return Usage{
		CPU:    time.Duration(cpu[0].GetCounter().GetValue() * float64(time.Second)),
		Memory: int64(memory[0].GetGauge().GetValue()),
	}, nil
}
