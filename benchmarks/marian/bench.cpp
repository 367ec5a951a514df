// Marian's TranslateService (translator/translator.h), but its graphs, one for each thread, are kept between calls, and
// calls are timed. When the program is ready, it writes a line of JSON. Then it answers requests from stdin on stdout.
// With BENCH_SOURCE, a file of sentences: stdin "MINI_BATCH NUM_SENTENCES NUM_CALLS"; stdout JSON with milliseconds of
// each call, the number of outputs, and the number of pieces of the shortest and of the longest output.
// Without it: stdin "MINI_BATCH NUM_SENTENCES" and a line for each sentence; stdout a line for each translation.
#include <atomic>
#include <chrono>
#include <fstream>
#include <iostream>
#include <thread>
#include "marian.h"
#include "translator/beam_search.h"
#include "translator/translator.h"

using namespace marian;

int main(int argc, char** argv) {
    const char* source = getenv("BENCH_SOURCE");
    auto options = parseOptions(argc, argv, cli::mode::translation);
    options = New<Options>(options->clone());
    options->set("inference", true, "shuffle", std::string("none"));
    std::vector<std::string> lines;
    if (source) {
        std::ifstream in(source);
        std::string line;
        while (std::getline(in, line)) lines.push_back(line);
    }

    auto vocabPaths = options->get<std::vector<std::string>>("vocabs");
    std::vector<Ptr<Vocab>> srcVocabs;
    auto src = New<Vocab>(options, 0);
    src->load(vocabPaths[0]);
    srcVocabs.push_back(src);
    auto trg = New<Vocab>(options, 1);
    trg->load(vocabPaths.back());
    Ptr<const data::ShortlistGenerator> shortlist;
    if (options->hasAndNotEmpty("shortlist")) {
        auto name = options->get<std::vector<std::string>>("shortlist")[0];
        bool shared = vocabPaths.front() == vocabPaths.back();
        if (data::isBinaryShortlist(name))
            shortlist = New<data::BinaryShortlistGenerator>(options, src, trg, 0, 1, shared);
        else shortlist = New<data::LexicalShortlistGenerator>(options, src, trg, 0, 1, shared);
    }
    auto devices = Config::getDevices(options);
    std::vector<Ptr<ExpressionGraph>> graphs;
    std::vector<std::vector<Ptr<Scorer>>> scorers;
    std::vector<std::vector<io::Item>> items;
    for (auto model : options->get<std::vector<std::string>>("models")) items.push_back(io::loadItems(model));
    for (auto device : devices) {
        auto graph = New<ExpressionGraph>(true);
        graph->setDefaultElementType(
            typeFromString(options->get<std::vector<std::string>>("precision", {"float32"})[0]));
        graph->setDevice(device);
        graph->getBackend()->configureDevice(options);
        graph->reserveWorkspaceMB(options->get<size_t>("workspace"));
        auto own = createScorers(options, items);
        for (auto scorer : own) {
            scorer->init(graph);
            if (shortlist) scorer->setShortlistGenerator(shortlist);
        }
        graph->forward();
        graphs.push_back(graph);
        scorers.push_back(own);
    }

    auto run = [&](const std::string& input) {
        auto corpus = New<data::TextInput>(std::vector<std::string>({input}), srcVocabs, options);
        data::BatchGenerator<data::TextInput> bg(corpus, options, nullptr, false);
        bg.prepare();
        std::vector<Ptr<data::CorpusBatch>> batches;
        for (auto batch : bg) batches.push_back(batch);
        auto collector = New<StringCollector>(true);
        auto printer = New<OutputPrinter>(options, trg);
        std::atomic<size_t> next{0};
        auto work = [&](size_t worker) {
            for (size_t b = next++; b < batches.size(); b = next++) {
                auto search = New<BeamSearch>(options, scorers[worker], trg);
                for (auto history : search->search(graphs[worker], batches[b])) {
                    std::stringstream best1, bestn;
                    printer->print(history, best1, bestn);
                    collector->add((long)history->getLineNum(), best1.str(), bestn.str());
                }
            }
        };
        std::vector<std::thread> threads;
        for (size_t w = 1; w < std::min(batches.size(), graphs.size()); ++w) threads.emplace_back(work, w);
        work(0);
        for (auto& t : threads) t.join();
        return utils::join(collector->collect(false), "\n");
    };

    ABORT_IF(source && lines.empty(), "{} has no line", source);
    std::cout << "{\"ready\": true}" << std::endl;
    int miniBatch;
    size_t num, calls;
    while (!source && std::cin >> miniBatch >> num) {
        std::string text, line;
        std::getline(std::cin, line);
        for (size_t i = 0; i < num && std::getline(std::cin, line); ++i) text += (i ? "\n" : "") + line;
        options->set("mini-batch", miniBatch, "maxi-batch", 1000);
        std::cout << run(text) << std::endl;
    }
    while (std::cin >> miniBatch >> num >> calls) {
        std::string text;
        for (size_t i = 0; i < num; ++i) text += (i ? "\n" : "") + lines[i % lines.size()];
        options->set("mini-batch", miniBatch, "maxi-batch", 1000);
        std::string out;
        std::vector<double> times;
        for (size_t c = 0; c < calls; ++c) {
            auto t0 = std::chrono::steady_clock::now();
            out = run(text);
            times.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - t0).count());
        }
        std::istringstream in(out);
        std::string line;
        size_t lo = 1 << 30, hi = 0, n = 0;
        while (std::getline(in, line)) {
            std::istringstream ws(line);
            std::string w;
            size_t k = 0;
            while (ws >> w) ++k;
            lo = std::min(lo, k);
            hi = std::max(hi, k);
            ++n;
        }
        std::cout << "{\"ms\": [";
        for (size_t i = 0; i < times.size(); ++i) std::cout << (i ? ", " : "") << times[i];
        std::cout << "], \"sentences\": " << n << ", \"shortest\": " << lo << ", \"longest\": " << hi << "}"
                  << std::endl;
    }
}
