// Package clients_test runs the official Go clients of both APIs against servers of the demo model.
package clients_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

const model = "cedrun-demo"

// serve starts the program that CEDRUN names on a free port and returns its address.
func serve(t *testing.T, key string, flags ...string) string {
	t.Helper()
	binary := os.Getenv("CEDRUN")
	if binary == "" {
		t.Skip("CEDRUN names no program: run make test-clients-go")
	}
	args := append([]string{"serve", "--port", "0", "--log-level", "warn", "--drain-time", "2s"}, flags...)
	cmd := exec.Command(binary, args...)
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "CEDRUN_") {
			cmd.Env = append(cmd.Env, e)
		}
	}
	if key != "" {
		cmd.Env = append(cmd.Env, "CEDRUN_API_KEY="+key)
	}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		if err := cmd.Wait(); err != nil {
			t.Errorf("the server: %v", err)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("no address: %v", err)
	}
	return strings.TrimSpace(line)
}

// idle waits until nothing runs on a server.
func idle(t *testing.T, url string) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		resp, err := http.Get(url + "/ready")
		if err != nil {
			t.Fatal(err)
		}
		var load struct{ Running, Waiting int }
		err = json.NewDecoder(resp.Body).Decode(&load)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		if load.Running+load.Waiting == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatal("a request still runs")
		}
	}
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// weather is the schema of a tool's arguments.
var weather = map[string]any{
	"type": "object", "required": []string{"city", "days"}, "additionalProperties": false,
	"properties": map[string]any{
		"city": map[string]any{"type": "string", "maxLength": 20},
		"days": map[string]any{"type": "integer", "minimum": 1, "maximum": 9},
	},
}

// checkWeather reads such arguments.
func checkWeather(t *testing.T, arguments string) {
	t.Helper()
	var a struct {
		City *string
		Days int
	}
	if err := json.Unmarshal([]byte(arguments), &a); err != nil || a.City == nil || a.Days < 1 || a.Days > 9 {
		t.Errorf("arguments %s: %v", arguments, err)
	}
}
