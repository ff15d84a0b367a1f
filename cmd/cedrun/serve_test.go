package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// locked is a buffer that a running command writes to.
type locked struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *locked) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *locked) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// serving is a running cedrun serve.
type serving struct {
	url   string
	errs  *locked
	end   context.CancelFunc // as SIGTERM does
	ended chan int           // its exit status
}

func serveDemo(t *testing.T, args ...string) *serving {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	out, in := io.Pipe()
	s := &serving{errs: &locked{}, end: cancel, ended: make(chan int, 1)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.ended <- run(ctx, append([]string{"cedrun", "serve", "--port", "0", "--context", "256", "--max-batch", "2", "--threads", "1"}, args...), strings.NewReader(""), in, s.errs)
		in.Close()
	}()
	t.Cleanup(func() { cancel(); <-done })
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatalf("no address: %s", s.errs)
	}
	s.url = lines.Text()
	return s
}

func (s *serving) post(t *testing.T, client *http.Client, path, body string, header ...string) (int, map[string]any) {
	t.Helper()
	q, err := http.NewRequest(http.MethodPost, s.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		q.Header.Set(header[i], header[i+1])
	}
	resp, err := client.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var o map[string]any
	if err := json.NewDecoder(resp.Body).Decode(&o); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, o
}

func TestServeAnswersAndEndsWell(t *testing.T) {
	t.Setenv("CEDRUN_API_KEY", "from-the-environment")
	keys := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(keys, []byte("# keys\nfrom-the-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := serveDemo(t, "--api-key-file", keys, "--served-name", "mine", "--served-name", "ours", "--temperature", "0")
	const body = `{"model":"ours","messages":[{"role":"user","content":"Speak of Moses."}],"max_tokens":4}`
	if code, _ := s.post(t, http.DefaultClient, "/v1/chat/completions", body); code != 401 {
		t.Errorf("without a key: %d", code)
	}
	for _, key := range []string{"from-the-environment", "from-the-file"} {
		code, o := s.post(t, http.DefaultClient, "/v1/chat/completions", body, "Authorization", "Bearer "+key)
		if code != 200 || o["model"] != "mine" {
			t.Errorf("with a key: %d %v", code, o)
		}
	}
	if code, o := s.post(t, http.DefaultClient, "/v1/completions", `{"prompt":"In the beginning","max_tokens":0,"echo":true,"logprobs":0}`, "X-Api-Key", "from-the-file"); code != 200 {
		t.Errorf("scoring a prompt: %d %v", code, o)
	}
	s.end()
	if status := <-s.ended; status != 0 {
		t.Errorf("exit status %d: %s", status, s.errs)
	}
	if log := s.errs.String(); !strings.Contains(log, `"path":"/v1/chat/completions"`) || strings.Contains(log, "from-the") || strings.Contains(log, "Moses") {
		t.Errorf("log: %s", log)
	}
}

func TestServeSpeaksTLS(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, block := range map[string]*pem.Block{"cert.pem": {Type: "CERTIFICATE", Bytes: der}, "key.pem": {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := serveDemo(t, "--tls-cert", filepath.Join(dir, "cert.pem"), "--tls-key", filepath.Join(dir, "key.pem"))
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	defer client.CloseIdleConnections()
	if code, o := s.post(t, client, "/v1/completions", `{"prompt":"In the beginning","max_tokens":2}`); code != 200 || !strings.HasPrefix(s.url, "https://") {
		t.Errorf("%s: %d %v", s.url, code, o)
	}
}

func TestServeWarnsWhenAnyoneMayCall(t *testing.T) {
	s := serveDemo(t, "--host", "0.0.0.0")
	if log := s.errs.String(); !strings.Contains(log, "anyone who reaches this address can use the model") {
		t.Errorf("log: %s", log)
	}
}

// What a checkpoint leaves out is a feature that is missing by name, in the list of models and in the log.
func TestServeNamesWhatACheckpointLeavesOut(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "partial")
	if err := os.CopyFS(dir, os.DirFS("../../testdata/demo")); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	drafts := `"num_nextn_predict_layers": 1,
  "dspark_block_size": 5, "dspark_noise_token_id": 3, "dspark_target_layer_ids": [3, 4, 5],
  "dspark_markov_rank": 32, "dspark_n_routed_experts": 4, "dspark_num_experts_per_tok": 2`
	data = bytes.Replace(data, []byte(`"num_nextn_predict_layers": 0`), []byte(drafts), 1)
	if err := os.WriteFile(filepath.Join(dir, "config.json"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	s := serveDemo(t, "-m", dir)
	resp, err := http.Get(s.url + "/v1/models")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var o struct {
		Data []struct{ Degraded []string }
	}
	if err := json.NewDecoder(resp.Body).Decode(&o); err != nil {
		t.Fatal(err)
	}
	if len(o.Data) != 1 || len(o.Data[0].Degraded) != 1 || !strings.HasPrefix(o.Data[0].Degraded[0], "draft (all ") {
		t.Errorf("models: %+v", o)
	}
	if log := s.errs.String(); !strings.Contains(log, `"without":"draft (all `) {
		t.Errorf("log: %s", log)
	}
	if code, o := s.post(t, http.DefaultClient, "/v1/completions", `{"prompt":"In the beginning","max_tokens":2}`); code != 200 {
		t.Errorf("status %d: %v", code, o)
	}
}

func TestServeRefusesBadFlags(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, []byte("# none\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	_, port, _ := net.SplitHostPort(busy.Addr().String())
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--api-key", "x"}, "unknown flag --api-key"}, // a command line can be read by others
		{[]string{"--api-key-file", empty}, "holds no key"},
		{[]string{"--api-key-file", empty + "x"}, "no such file"},
		{[]string{"--tls-cert", empty}, "give both"},
		{[]string{"--tls-cert", empty, "--tls-key", empty}, "--tls-cert and --tls-key:"},
		{[]string{"--port", port}, "address already in use"},
		{[]string{"--port", "99999"}, "invalid port"},
		{[]string{"--cache", "on"}, "use snapshot, replay or off"},
		{[]string{"--prefill", "fast"}, "use exact, cone or replay"},
		{[]string{"--max-batch", "0"}, "use 1 or more"},
		{[]string{"--timeout", "-1s"}, "use 0 or more"},
		{[]string{"--keep-alive", "1ns"}, "--keep-alive 1ns: use 10ms or more"},
		{[]string{"--temperature", "9"}, "temperature is 9"},
		{[]string{"--port", "0", "--context", "99999999"}, "this model takes at most"},
		{[]string{"--port", port, "--kv-device", "4 gigs"}, "--kv-device: size"}, // before the address is taken
		{[]string{"--port", port, "--kv-disk", "much"}, "--kv-disk: size"},
		{[]string{"--port", "0", "--kv-host", "900TiB"}, "are free: lower --kv-device or --kv-host"},
		{[]string{"--port", "0", "-m", testdata + "mini/base"}, "has no tokenizer.json"},
	} {
		r := cedrun(t, "", append([]string{"serve", "--log-level", "disabled"}, c.args...)...)
		if r.status != exitError || r.out != "" || !strings.Contains(r.err, c.want) || strings.Count(r.err, "\n") != 1 {
			t.Errorf("%v: status %d, stdout %q, stderr %q; want %q", c.args, r.status, r.out, r.err, c.want)
		}
	}
}

func TestAKVCacheSmallerThanATextIsRefused(t *testing.T) {
	for _, c := range []struct{ flag, value, want string }{
		{"--kv-device", "10kB", "less than the context of 256"}, {"--kv-host", "much", "--kv-host: size"}, {"--cache", "any", "use snapshot, replay or off"},
	} {
		var errs bytes.Buffer
		status := run(context.Background(), []string{"cedrun", "serve", "--port", "0", "--context", "256", c.flag, c.value}, strings.NewReader(""), io.Discard, &errs)
		if status == 0 || !strings.Contains(errs.String(), c.want) {
			t.Errorf("%s %s: status %d: %s", c.flag, c.value, status, &errs)
		}
	}
}
