// Package kv keeps the books of the global KV cache: how a page is laid out, which pages are free, which page holds
// which tokens of a sequence. It is pure bookkeeping: it never touches the memory it describes and imports nothing
// native, so that paging, prefix sharing and tiers can be tested without kernels.
//
// A page holds PageTokens tokens of every owner layer (the layers that own global KV). An owner's rows lie in four
// planes of the page, each 16-byte aligned: main codes, main scales, index codes, index scales (spec/model 5).
package kv
