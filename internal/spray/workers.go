package spray

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// Workers are threads that each stay on one CPU.
type Workers struct {
	jobs []chan func() error
	done chan error
}

// NewWorkers starts a thread on each of the CPUs.
func NewWorkers(cpus ...int) (*Workers, error) {
	w := &Workers{done: make(chan error)}
	for _, cpu := range cpus {
		jobs := make(chan func() error)
		w.jobs = append(w.jobs, jobs)
		go func() {
			// the thread ends with the goroutine: its affinity is not undone
			runtime.LockOSThread()
			w.done <- stayOn(cpu)
			for job := range jobs {
				w.done <- job()
			}
		}()
	}
	if err := w.wait(); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

func stayOn(cpu int) error {
	var one unix.CPUSet
	one.Set(cpu)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return fmt.Errorf("move to CPU %d: %w", cpu, err)
	}
	return nil
}

// Together runs fn on every CPU at the same moment, with the place of the CPU
// in the list, and returns when all are done.
func (w *Workers) Together(fn func(i int) error) error {
	start := make(chan struct{})
	for i, jobs := range w.jobs {
		jobs <- func() error {
			<-start
			return fn(i)
		}
	}
	close(start)
	return w.wait()
}

func (w *Workers) wait() error {
	var all error
	for range w.jobs {
		all = errors.Join(all, <-w.done)
	}
	return all
}

// Close ends the threads.
func (w *Workers) Close() {
	for _, jobs := range w.jobs {
		close(jobs)
	}
}
