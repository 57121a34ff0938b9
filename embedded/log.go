package embedded

import (
	"flag"
	"fmt"
	"io"
	stdlog "log"
	"os"
	"strconv"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"gopkg.in/natefinch/lumberjack.v2"
	"k8s.io/klog/v2"
)

// The log of Kubernetes at a start and a stop has errors that mean nothing, so
// it goes to a file of its own: at most two old ones, of this many megabytes each.
const logSize = 50

// logFile is where etcd and Kubernetes write. It is the process's, like klog.
var logFile io.Writer = io.Discard

// logTo sends every log of the process to path. Call the result at the end.
func logTo(path string, verbose int) (done func()) {
	file := &lumberjack.Logger{Filename: path, MaxSize: logSize, MaxBackups: 2}
	logFile = file
	fs := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(fs)
	for name, value := range map[string]string{
		"logtostderr":     "false",
		"one_output":      "true", // else an error is written once for every lower severity, too
		"stderrthreshold": "FATAL",
		"v":               strconv.Itoa(verbose),
	} {
		if err := fs.Set(name, value); err != nil {
			panic(err) // the flags are klog's own
		}
	}
	klog.SetOutput(file)
	stdlog.SetOutput(file)
	return func() {
		klog.Flush()
		file.Close()
	}
}

// etcdLog is etcd's share of the log.
func etcdLog(dataDir string) *zap.Logger {
	core := zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.AddSync(logFile), zap.WarnLevel)
	end := lastWords{dataDir: dataDir}
	return zap.New(core, zap.WithPanicHook(end), zap.WithFatalHook(end))
}

// lastWords ends the process when etcd finds its data damaged. etcd would
// panic, in a goroutine where nobody can recover it, and leave a stack trace for
// a message.
type lastWords struct{ dataDir string }

var _ zapcore.CheckWriteHook = lastWords{}

func (l lastWords) OnWrite(e *zapcore.CheckedEntry, fields []zapcore.Field) {
	values := zapcore.NewMapObjectEncoder()
	for _, f := range fields {
		f.AddTo(values)
	}
	fmt.Fprintf(os.Stderr, "isobar-control-plane: etcd: %s: %v (data in %s)\n", e.Message, values.Fields["error"], l.dataDir)
	os.Exit(1)
}

// logError logs an error that stops nothing.
func logError(err error, what string) { klog.ErrorS(err, what) }
