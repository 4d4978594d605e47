"""The faults that `plant.py` plants: mistakes that a programmer could make without seeing them.

An entry says what breaks in one sentence, where, which text (it must occur once in that file) is
replaced by which, and which tests below tests/ should notice. To repair an entry after a change of
the source, give it a text of the new code that says the same; keep texts short. `marker` names the
extra that its tests need: without it the fault is skipped.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    breaks: str  # in one sentence
    file: str  # below src/fedloom/
    text: str
    instead: str
    tests: tuple[str, ...]  # files below tests/, or tests in them as file::name
    marker: str = ""


LOOP = "unit/federation/test_stages_and_budget.py"
BOUNDS = "unit/federation/test_bounds_by_description.py"
VERSIONS = "unit/federation/test_versions.py"
TOPOLOGY = "unit/federation/test_topology.py"
AGGREGATE = "unit/federation/test_aggregate.py"
ADMISSION = "unit/federation/test_admission.py"
WIRE = "unit/federation/test_wire.py"
SPOOL = "unit/federation/test_spool.py"
CHECKPOINT = "unit/federation/test_checkpoint.py"
STORE = "unit/federation/test_store.py"
SITE = "unit/federation/test_site.py"
COMPARISON = "unit/test_comparison.py"
SPLIT = "unit/data/test_split.py"
FLOWER = "flower/test_before_starting.py"

# Each of these passed every test once.
FIRST = (
    Fault(
        "kNN-Per chooses λ with the validation samples among the remembered ones, where each "
        "finds itself.",
        "methods/knn_per.py",
        "outputs.features[:cut],\n            labels[:cut],\n            outputs.features[cut:],",
        "outputs.features,\n            labels,\n            outputs.features[cut:],",
        ("unit/methods/test_knn_per.py",),
    ),
    Fault(
        "The best round of one stage is taken for the best of the next one too.",
        "federation/server/loop.py",
        "            best=None,\n",
        "",
        (LOOP,),
    ),
    Fault(
        "In a comparison every method sets the budget and the parameters of the one after it, not "
        "the first alone.",
        "runs/comparison.py",
        "if method == self.plan.methods[0]:",
        "if True:",
        (COMPARISON,),
    ),
    Fault(
        "The table of a comparison shows the pooled figure in the column of the worst client.",
        "report/comparison_table.py",
        "metric.text(row.worst.mean),",
        "metric.text(row.pooled.mean),",
        ("unit/report/test_tables.py",),
    ),
    Fault(
        "A message may claim more bytes for a tensor than its shape has.",
        "federation/protocol/packing.py",
        "if offsets[1] - offset != math.prod(shape)",
        "if offsets[1] - offset < math.prod(shape)",
        (WIRE,),
    ),
    Fault(
        "The header of a message may be as long as its sender likes.",
        "federation/protocol/wire.py",
        "length > min(MOST_HEADER, len(view) - 8)",
        "length > len(view) - 8",
        (WIRE,),
    ),
    Fault(
        "FedNAS goes on with the optimisers of the round before while it tunes, although they are "
        "to be reset.",
        "methods/fednas.py",
        "if own is None or not self.options.keeps_optimizer:",
        "if own is None:",
        ("unit/methods/test_fednas.py",),
    ),
    Fault(
        "A client deletes the state that it reads, so that an order of a second hop cannot be "
        "sent again.",
        "federation/server/exchange.py",
        "keep |= {f",
        "keep -= {f",
        (VERSIONS,),
    ),
    Fault(
        "A stage at equal MACs or bytes goes on until its budget is spent, instead of ending "
        "where it is nearest.",
        "federation/server/loop.py",
        "spent + checkpoint.last_cost / 2 > budget",
        "spent > budget",
        (LOOP,),
    ),
    Fault(
        "After a second hop with too few replies, clients that did not fit the run are asked anew "
        "in mid-round.",
        "federation/server/spool.py",
        "receipt.hop == DESCRIBE and hop == 0 and",
        "receipt.hop == DESCRIBE and",
        (SPOOL,),
    ),
    Fault(
        "An exported network loses a value between two layers that something else looks at too.",
        "export/folding.py",
        "        and list(last.users) == [node]\n",
        "",
        ("unit/export/test_folding.py",),
    ),
    Fault(
        "A dry run leaves the headers out of the bytes that go down.",
        "runs/stand_in.py",
        "sizes[look] = encoded_size(self._stamped(hop, order))",
        "sizes[look] = Body(order.tensors).size",
        ("unit/test_estimate.py",),
    ),
    Fault(
        "The report of a run leaves the traffic inside clusters out of its headline.",
        "records/result_parts.py",
        "return self.down + self.up + self.inside_clusters",
        "return self.down + self.up",
        ("unit/report/test_headline.py",),
    ),
    Fault(
        "A client may say how many clients stand behind its reply.",
        "federation/client/site.py",
        "replace(reply, count=None, wrote",
        "replace(reply, wrote",
        (SITE,),
    ),
)

FURTHER = (
    # Random streams
    Fault(
        "The draws of all purposes are one stream: what a name asks for changes what another one "
        "gets.",
        "types.py",
        "return rng(self.seed, self.number, purpose)",
        "return rng(self.seed, self.number)",
        ("unit/test_types.py",),
    ),
    Fault(
        'A draw named by the number 1 is the draw named by the text "1".',
        "rng.py",
        'f"{type(part).__name__}:{part}"',
        'f"{part}"',
        ("unit/test_rng.py",),
    ),
    Fault(
        "All clients shuffle their batches alike.",
        "federation/protocol/method.py",
        "return torch_rng(self.task.seed, self.round, self.hop, self.identity,",
        "return torch_rng(self.task.seed, self.round, self.hop,",
        ("unit/test_training.py",),
    ),
    # Aggregation
    Fault(
        "The mean of whole replies is not weighted by their samples.",
        "federation/protocol/aggregate.py",
        "add_in_steps(self.common.total, tensors.flat(torch.float32), weight)",
        "add_in_steps(self.common.total, tensors.flat(torch.float32), 1.0)",
        (AGGREGATE,),
    ),
    Fault(
        "A tensor that too few clients brought is averaged all the same.",
        "federation/protocol/aggregate.py",
        "    if tally.clients < min_clients:\n        return old\n",
        "",
        (AGGREGATE,),
    ),
    Fault(
        "A smaller client's weight counts for all elements of a tensor, not for those of its "
        "region.",
        "federation/protocol/aggregate.py",
        "tally.weight[where] += weight",
        "tally.weight += weight",
        (AGGREGATE,),
    ),
    Fault(
        "A cluster's mean counts as one client, however many stand behind it.",
        "federation/protocol/aggregate.py",
        "count[key] = tally.clients",
        "count[key] = 1",
        (AGGREGATE, TOPOLOGY),
    ),
    # Admission
    Fault(
        "A reply may weigh more than the samples that its client has.",
        "federation/protocol/admission.py",
        "or weight < 0 or weight > most",
        "or weight < 0",
        (ADMISSION,),
    ),
    Fault(
        "A reply with half-precision or double tensors may hold NaN.",
        "federation/protocol/admission.py",
        "entry.dtype not in (torch.float64, torch.float16)",
        "entry.dtype != torch.float32",
        (ADMISSION,),
    ),
    Fault(
        "A client whose labels stand in another order is taken in.",
        "federation/protocol/basic_replies.py",
        'if tuple(meta["labels"]) != task.labels:',
        'if set(meta["labels"]) != set(task.labels):',
        (ADMISSION,),
    ),
    # Messages
    Fault(
        "A header may name one key twice, and the last one wins.",
        "federation/protocol/strict_json.py",
        "if len(fields) < len(pairs):",
        "if not pairs and fields:",
        (WIRE,),
    ),
    Fault(
        "A byte of a boolean tensor that is neither 0 nor 1 reaches torch.",
        "federation/protocol/packing.py",
        "if entry.dtype == torch.bool:",
        "if entry.dtype is None:",
        (WIRE,),
    ),
    # What lies on disks
    Fault(
        "A journal line torn by a kill is read as if it were whole.",
        "federation/server/spool.py",
        'split(b"\\n")[:-1]',
        'split(b"\\n")',
        (SPOOL,),
    ),
    Fault(
        "The best round's checkpoint is deleted with the older ones.",
        "federation/server/archive.py",
        "needed.add(best.round)",
        "pass",
        (CHECKPOINT,),
    ),
    Fault(
        "Rows of metrics beyond the checkpoint stay when a run is resumed.",
        "federation/server/archive.py",
        "cut_to(self.metrics, checkpoint.rows)",
        "pass",
        (CHECKPOINT,),
    ),
    Fault(
        "A client's states are told apart as texts, so that round 10 is older than round 9.",
        "federation/client/store.py",
        "return int(number), int(hop)",
        "return number, hop",
        (STORE,),
    ),
    Fault(
        "A late order makes a client delete a state that is newer than the one it writes.",
        "federation/client/store.py",
        "if age(other) < age(version) and other not in keep:",
        "if age(other) != age(version) and other not in keep:",
        (STORE,),
    ),
    # Rounds and budgets
    Fault(
        "A run at equal bytes does not count what stays inside clusters.",
        "records/totals.py",
        'sent["down"] + sent["up"] + lan_traffic_of(sent)',
        'sent["down"] + sent["up"]',
        ("unit/federation/test_ledger.py",),
    ),
    Fault(
        "A later stage gets its share of the whole budget, not of what is left.",
        "federation/server/loop.py",
        "remaining = self.settings.budget - checkpoint.charged",
        "remaining = self.settings.budget",
        (LOOP,),
    ),
    Fault(
        "Rounds are selected by their figures on the test part.",
        "federation/server/loop.py",
        'part = "validation"',
        'part = "test"',
        (LOOP,),
    ),
    Fault(
        "A cluster goes on from the server's model in every hop, not from its own mean.",
        "federation/server/cluster_round.py",
        "tensors = {**self.orders[0].tensors, **self.mean.tensors}",
        "tensors = {**self.mean.tensors, **self.orders[0].tensors}",
        (TOPOLOGY,),
    ),
    Fault(
        "A refused reply still makes the server ask for the client state that it wrote.",
        "federation/server/exchange.py",
        "accepted = [receipt for receipt in receipts if receipt.reason is None]",
        "accepted = list(receipts)",
        (VERSIONS,),
    ),
    # The server's optimisers
    Fault(
        "Yogi's second moment moves away from the square of the change.",
        "learning/server_optimizers.py",
        "torch.sign(v - square)",
        "torch.sign(square - v)",
        ("unit/federation/test_server_optimizers.py",),
    ),
    Fault(
        "Clients are sent the memory of the server's optimiser.",
        "federation/protocol/method.py",
        "if not key.startswith(SERVER)",
        "if key",
        ("unit/federation/test_server_optimizers.py", "unit/methods/test_fedopt.py"),
    ),
    # Methods
    Fault(
        "FedAvg trains without the weight decay that it was given.",
        "learning/training.py",
        "        weight_decay=options.weight_decay,\n",
        "",
        ("unit/test_training.py", "unit/methods/test_fedavg.py"),
    ),
    Fault(
        "FedProx pushes away from the received weights.",
        "learning/proximal.py",
        "alpha=mu)",
        "alpha=-mu)",
        ("unit/methods/test_fedprox.py",),
    ),
    Fault(
        "Ditto's personal model sets out from the received weights every round.",
        "methods/ditto.py",
        "v = model(run.task, options, weights)",
        "v = model(run.task, options, order.tensors)",
        ("unit/methods/test_ditto.py",),
    ),
    Fault(
        "FedRep trains the head along with the body.",
        "methods/fedrep.py",
        "name.startswith(prefix) == head)",
        "name.startswith(prefix) or not head)",
        ("unit/methods/test_fedrep.py",),
    ),
    Fault(
        "Per-FedAvg takes its inner step uphill.",
        "methods/perfedavg.py",
        "with moved(parameters, step, -options.alpha):",
        "with moved(parameters, step, options.alpha):",
        ("unit/methods/test_perfedavg.py",),
    ),
    Fault(
        "kNN-Per trains on the samples that it chooses λ by.",
        "methods/knn_per.py",
        "part = data.split(self.options.train_share)[0]",
        "part = data",
        ("unit/methods/test_knn_per.py",),
    ),
    Fault(
        "kNN-Per mixes the neighbours and the network the wrong way round.",
        "methods/knn_per.py",
        "return lam * near + (1 - lam) * shared",
        "return (1 - lam) * near + lam * shared",
        ("unit/methods/test_knn_per.py",),
    ),
    Fault(
        "Local training forgets its momentum between rounds.",
        "methods/local.py",
        'order.meta["lr"], run, momentum=momentum_in(own))',
        'order.meta["lr"], run)',
        ("unit/methods/test_local.py",),
    ),
    Fault(
        "Local adaptation sends the shared network again to clients that have their own.",
        "learning/personal.py",
        "{} if client in started else state.tensors",
        "state.tensors",
        ("unit/methods/test_local_adaptation.py",),
    ),
    Fault(
        "FedMN weighs modules that no sample of the client went through.",
        "methods/fedmn.py",
        "weights = weigh(pool, len(data) * used / seen)",
        "weights = weigh(pool, len(data) * torch.ones_like(used))",
        ("unit/methods/test_fedmn.py",),
    ),
    Fault(
        "FedAdagrad has the momentum of FedAdam.",
        "methods/fedopt.py",
        "beta1: float = Field(0.0, ge=0",
        "beta1: float = Field(0.9, ge=0",
        ("unit/methods/test_fedopt.py",),
    ),
    Fault(
        "FedNAS moves α by the training loss twice, and never by the validation loss.",
        "searchers/milenas.py",
        "        of_validation = self._validation_gradient(validation)\n"
        "        of_alpha = self._weighed(of_train",
        "        of_validation = self._alpha_gradient(train)\n"
        "        of_alpha = self._weighed(of_train",
        ("unit/methods/test_fednas.py",),
    ),
    Fault(
        "SPIDER trains on its validation part during the search.",
        "methods/spider.py",
        "        if due == self.options.events:\n            training = data\n",
        "        training = data\n",
        ("unit/methods/test_spider.py",),
    ),
    Fault(
        "SPIDER's personal model is not pulled to the received weights.",
        "methods/spider.py",
        "            pull = pull_towards(order.tensors, options.pull)\n",
        "            pull = None\n",
        ("unit/methods/test_spider.py",),
    ),
    Fault(
        "FedNAS by perturbation decides all edges at once.",
        "methods/fednas_perturbation.py",
        "while undecided and len(self.edges) - len(undecided) < due:",
        "while undecided:",
        ("unit/methods/test_fednas_perturbation.py",),
    ),
    Fault(
        "A newcomer begins its second round from what the federation left, not from its own "
        "network.",
        "runs/newcomers.py",
        "            net.load_state_dict(weights_in(own))",
        "            pass",
        ("unit/methods/test_adapt.py",),
    ),
    # Evaluation and metrics
    Fault(
        "A client that is asked for its validation figure answers with its test part.",
        "federation/client/site.py",
        "part = data.validation",
        "part = data.test",
        (SITE, LOOP),
    ),
    Fault(
        "The figure of the shared model is that of the client's own.",
        "federation/client/site.py",
        "shared = figures_on(predict_shared, part, run.task, self.device)",
        "shared = personal",
        (SITE, "unit/methods/test_ditto.py"),
    ),
    Fault(
        "A model that answers two classes is said to give one answer.",
        "records/cautions.py",
        "return answers <= 1 and samples > 1",
        "return answers <= 2 and samples > 1",
        ("unit/report/test_cautions.py",),
    ),
    Fault(
        "A client with exactly 20 test samples is said to have too few.",
        "records/result.py",
        "if client.test_samples < FEW_SAMPLES",
        "if client.test_samples <= FEW_SAMPLES",
        ("unit/report/test_cautions.py",),
    ),
    Fault(
        "The pooled balanced accuracy is of those samples alone of which somebody told.",
        "records/result.py",
        "if self.confusion.samples != samples:",
        "if self.confusion.samples > samples:",
        ("unit/report/test_tables.py",),
    ),
    Fault(
        "AUC of a scored path ranks the first class instead of the second.",
        "searchers/path_scores.py",
        "margins = scores[:, 1].double() - scores[:, 0].double()",
        "margins = scores[:, 0].double() - scores[:, 1].double()",
        ("unit/searchers/test_class_counts.py",),
    ),
    Fault(
        "A path's balanced accuracy is known although not all of its samples were counted.",
        "searchers/path_scores.py",
        "if self.by_class is None or other.by_class is None:\n            return None",
        "if self.by_class is None or other.by_class is None:\n            return self.by_class",
        ("unit/searchers/test_class_counts.py",),
    ),
    Fault(
        "The small print of a page calls columns of stages by another name.",
        "report/sections/methods.py",
        "return small_print(versus.rows, versus.metric, columns)",
        "return small_print(versus.rows, versus.metric)",
        ("unit/report/test_two_classes.py",),
    ),
    Fault(
        "A tier's network before tuning has the balanced accuracy of the tuned one.",
        "runs/tier_results.py",
        'beside = named_after("supernet", before_tuning.beside)',
        'beside = named_after("supernet", tuned.beside)',
        ("unit/test_result.py",),
    ),
    Fault(
        "Personal models that lost against the shared one are said to have gained.",
        "report/cautions.py",
        "if metric.better(gain.own, gain.shared):",
        "if metric.better(gain.shared, gain.own):",
        ("unit/report/test_cautions.py",),
    ),
    Fault(
        "Samples that a run only tests on count as trained on.",
        "export/trained_on.py",
        "finished.site.data(client).train.x",
        "finished.site.data(client).test.x",
        ("integration/test_one_answer.py",),
    ),
    Fault(
        "A confusion matrix may contradict the number of different answers.",
        "federation/protocol/basic_replies.py",
        "if figures.answers is not None and figures.answers != len(predicted):",
        "if figures.answers is not None and figures.answers > len(counts):",
        (ADMISSION,),
    ),
    Fault(
        "A test part of one class has a balanced accuracy.",
        "metrics/classification.py",
        "if int((present > 0).sum()) < 2:",
        "if int((present > 0).sum()) < 1:",
        ("unit/metrics/test_classification.py",),
    ),
    Fault(
        "A model whose one answer is always right is not counted.",
        "records/cautions.py",
        "return answers <= 1 and samples > 1",
        "return answers <= 1 and samples > 1 and figure < 1",
        ("unit/report/test_cautions.py",),
    ),
    Fault(
        "What a stage ended with is averaged over other parts of the data.",
        "evaluate/judgement.py",
        "if end_in_run.stage == end.stage and end_in_run.part == end.part:",
        "if end_in_run.stage == end.stage:",
        ("unit/report/test_tables.py",),
    ),
    Fault(
        "A phase costs what its last round does.",
        "runs/rehearsal_costs.py",
        "return PhaseCost(self.name, self.rounds + 1, self.cost.plus(cost))",
        "return PhaseCost(self.name, self.rounds + 1, cost)",
        ("unit/test_estimate.py",),
    ),
    Fault(
        "Balanced accuracy counts classes that do not occur.",
        "metrics/classification.py",
        "occurs = below > 0",
        "occurs = below >= 0",
        ("unit/metrics/test_classification.py",),
    ),
    Fault(
        "A pooled perplexity does not weigh clients by their samples.",
        "metrics/perplexity.py",
        "losses.append(figures.samples * math.log(figures.value))",
        "losses.append(math.log(figures.value))",
        ("unit/metrics/test_perplexity.py",),
    ),
    Fault(
        "Of perplexities the lowest client is called the worst.",
        "evaluate/summary.py",
        "reverse=lower_is_better)",
        "reverse=False)",
        ("unit/evaluate/test_summary.py",),
    ),
    Fault(
        "The spread over clients is that of a sample, not of all of them.",
        "evaluate/summary.py",
        "float(pstdev(worst_first))",
        "float(stdev(worst_first)) if len(worst_first) > 1 else 0.0",
        ("unit/evaluate/test_summary.py",),
    ),
    Fault(
        "The interval of a paired difference is not divided by the root of the number of seeds.",
        "evaluate/paired.py",
        "error = std / math.sqrt(n)",
        "error = std",
        ("unit/evaluate/test_paired.py",),
    ),
    Fault(
        "The same difference with every seed counts as certain.",
        "evaluate/paired.py",
        "if std is None or std <= ROUNDING * max(map(abs, (*a, *b))):",
        "if std is None or std == 0:",
        ("unit/evaluate/test_paired.py",),
    ),
    Fault(
        "Holm's adjustment multiplies every p-value by the number of comparisons, as Bonferroni's "
        "does.",
        "evaluate/paired.py",
        "value * (len(values) - rank)",
        "value * len(values)",
        ("unit/evaluate/test_paired.py",),
    ),
    # Data
    Fault(
        "A client's test part is also in the rest that it trains on.",
        "data/split.py",
        "return own[tests[k] :], own[: tests[k]]",
        "return own, own[: tests[k]]",
        (SPLIT,),
    ),
    Fault(
        "A client gets the first sample of the client after it.",
        "data/split.py",
        "own = indices[offsets[k] : offsets[k + 1]]",
        "own = indices[offsets[k] : offsets[k + 1] + 1]",
        (SPLIT,),
    ),
    Fault(
        "What is held back for validation is trained on as well.",
        "data/mapped_clients.py",
        "partial(self.own, k, rest[:cut]),",
        "partial(self.own, k, rest),",
        ("unit/data/test_mapped_clients.py",),
    ),
    Fault(
        "All classes are cut by one Dirichlet draw, so that clients differ in size but not in "
        "labels.",
        "data/partitions/dirichlet.py",
        ".dirichlet(np.full(clients, alpha), len(totals))",
        ".dirichlet(np.full(clients, alpha), 1).repeat(len(totals), 0)",
        ("unit/data/test_partition.py", "unit/data/partitions/test_skew.py"),
    ),
    Fault(
        "The server's validation set is dealt out to clients too.",
        "data/split.py",
        "dealt(source, shuffled[carved:], clients",
        "dealt(source, shuffled, clients",
        (SPLIT,),
    ),
    # Comparisons
    Fault(
        "Every method of a comparison makes a split of its own.",
        "runs/comparison.py",
        "run, split = self.run_one(name, method, seed, changes, terms.split)\n",
        "run, split = self.run_one(name, method, seed, changes, None)\n",
        (COMPARISON,),
    ),
    Fault(
        "A comparison's interval is that of two independent samples: the seeds of a pair are "
        "mixed up.",
        "evaluate/paired.py",
        "zip(a, b, strict=True)",
        "zip(sorted(a), sorted(b, reverse=True), strict=True)",
        ("unit/evaluate/test_paired.py", COMPARISON),
    ),
    Fault(
        "A grid takes the point with the worst validation figure.",
        "runs/comparison.py",
        "run.metric.better(value, best[0])",
        "run.metric.better(best[0], value)",
        (COMPARISON,),
    ),
    Fault(
        "A grid tunes networks of another width and budget than those that are reported.",
        "runs/comparison.py",
        "self._tune(method, terms)",
        "self._tune(method, Terms())",
        (COMPARISON,),
    ),
    Fault(
        "A grid is tuned on the best round, though the last is reported.",
        "runs/planning.py",
        '"evaluate": {"hold_back": True},',
        '"evaluate": {"hold_back": True, "select": "best"},',
        (COMPARISON,),
    ),
    # Models that leave
    Fault(
        "A prediction's class probabilities are unnormalised scores.",
        "export/predicting.py",
        "scores.softmax(1).numpy()",
        "scores.numpy()",
        ("integration/test_exports.py",),
    ),
    Fault(
        "A client's exported model is the shared one.",
        "export/finished.py",
        "own = site.store.read(client, version)",
        "own = None",
        ("integration/test_exports.py",),
    ),
    # Reports
    Fault(
        "The report marks the best client as the worst where lower is better.",
        "report/sections/headline.py",
        "story.metric.better(worst_figure, client.figure)",
        "worst_figure > client.figure",
        ("unit/report/test_headline.py", "unit/report/test_report_page.py"),
    ),
    Fault(
        "A curve is drawn upside down.",
        "report/figures/curves.py",
        "bottom, top, bounds=self.bounds)",
        "top, bottom, bounds=self.bounds)",
        ("unit/report/test_figures.py",),
    ),
    Fault(
        "The end of a long curve is not drawn.",
        "report/figures/curves.py",
        "[*drawable[::every], drawable[-1]]",
        "[*drawable[::every]]",
        ("unit/report/test_figures.py",),
    ),
    # A site's own policy, and Flower
    Fault(
        "A site in other units than the rest is taken in without a word.",
        "deploy/terms.py",
        "site.shape == common.shape and (site.mean, site.std)",
        "site.shape != common.shape and (site.mean, site.std)",
        ("unit/flower/test_terms.py",),
    ),
    Fault(
        "A site's test part is also trained on.",
        "deploy/terms.py",
        "remaining = order[tests:]",
        "remaining = order",
        ("unit/flower/test_terms.py",),
    ),
    Fault(
        "A site orders its samples like every other one, not as an embedded run would.",
        "deploy/terms.py",
        "own_order(terms.seed, client, len(source.y))",
        "own_order(terms.seed, 0, len(source.y))",
        ("unit/flower/test_terms.py",),
    ),
    Fault(
        "Whoever reaches the server's port may submit programs to it.",
        "deploy/guard.py",
        'return str(scope["path"]).startswith(SITES)',
        "return True",
        ("unit/flower/test_guard.py",),
    ),
    Fault(
        "A key that the federation does not name is let in.",
        "deploy/members.py",
        'return "its key is not one of the federation\'s"',
        "return None",
        ("unit/deploy/test_members.py",),
    ),
    Fault(
        "The alarm of a time limit fires while it is disarmed.",
        "deploy/limits.py",
        "        self.is_over = True  # first: from here on the alarm raises nothing\n",
        "",
        ("unit/deploy/test_time_limit.py",),
    ),
    Fault(
        "A backup is made while a site counts.",
        "deploy/backup.py",
        "            stack.enter_context(locked_experiments(states))\n",
        "            pass\n",
        ("unit/deploy/test_backup.py",),
    ),
    Fault(
        "A site runs a program that brings packages of its own.",
        "deploy/guard.py",
        "components == COMPONENTS and dependencies == []",
        "components == COMPONENTS",
        ("unit/flower/test_guard.py",),
    ),
    Fault(
        "A site runs a program that brings further files.",
        "deploy/guard.py",
        "            if names != FILES:\n                return False\n",
        "",
        ("unit/flower/test_guard.py",),
    ),
    Fault(
        "A site's policy does not look at the fields that leave.",
        "deploy/site.py",
        '    check_names(reply.meta, policy.fields, "fields")\n',
        "",
        (FLOWER,),
        "flower",
    ),
    Fault(
        "A site takes any number of rounds, whatever its policy says.",
        "deploy/site.py",
        "if number > policy.rounds:",
        "if number < 0:",
        (FLOWER,),
        "flower",
    ),
    Fault(
        "A site's full disk stops everybody's run.",
        "federation/engines/flower/parcels.py",
        "if fault.kind in CODES:",
        "if fault.kind:",
        (FLOWER,),
        "flower",
    ),
    Fault(
        "A reply to another question is taken for the answer of the first client that waits.",
        "federation/engines/flower/engine.py",
        "parcel = waiting.pop(message.metadata.reply_to_message_id, None)",
        "parcel = waiting.pop(next(iter(waiting)), None)",
        ("flower/test_engine.py",),
        "flower",
    ),
    Fault(
        "A site is whoever it says it is, although keys are asked for.",
        "deploy/server.py",
        "if not federation.insecure:",
        "if federation.insecure:",
        (FLOWER,),
        "flower",
    ),
)

# Smaller mistakes in the same places.
SUBTLE = (
    Fault(
        "Ditto's personal rate does not follow the schedule.",
        "methods/ditto.py",
        "return rate * (self.v_lr / self.lr)",
        "return self.v_lr",
        ("unit/methods/test_ditto.py",),
    ),
    Fault(
        "Ditto's personal model is trained for as many epochs as the shared one, whatever was "
        "asked for.",
        "methods/ditto.py",
        '"epochs": options.v_epochs or options.epochs',
        '"epochs": options.epochs',
        ("unit/methods/test_ditto.py",),
    ),
    Fault(
        "Per-FedAvg adds the Hessian's product instead of taking it away.",
        "methods/perfedavg.py",
        "corrected.append(g - options.alpha * hessian_product)",
        "corrected.append(g + options.alpha * hessian_product)",
        ("unit/methods/test_perfedavg.py",),
    ),
    Fault(
        "Per-FedAvg takes all three of its batches from one draw.",
        "methods/perfedavg.py",
        """run.with_stream("inner"))
        outer_batches = training_batches(data, options, run)
        third_batches = training_batches(data, options, run.with_stream("hessian"))""",
        """run)
        outer_batches = training_batches(data, options, run)
        third_batches = training_batches(data, options, run)""",
        ("unit/methods/test_perfedavg.py",),
    ),
    Fault(
        "Per-FedAvg's steps at home keep the momentum and decay of training.",
        "methods/perfedavg.py",
        '"momentum": 0.0,\n            "weight_decay": 0.0,\n',
        "\n",
        ("unit/methods/test_perfedavg.py",),
    ),
    Fault(
        "FedMN's temperature falls over the whole run, not over the exploration.",
        "methods/fedmn.py",
        "done = progress / self.explore_share",
        "done = progress",
        ("unit/methods/test_fedmn.py",),
    ),
    Fault(
        "FedRep's last round fits new heads instead of going on with those that clients have.",
        "methods/fedrep.py",
        'Stage("heads", Heads(options), share=None, keeps_own=True)',
        'Stage("heads", Heads(options), share=None)',
        ("unit/methods/test_fedrep.py",),
    ),
    Fault(
        "SPIDER's personal model keeps its momentum after a round that was undone.",
        "methods/spider.py",
        "return replace(private, momentum={}, diverged=private.diverged + 1)",
        "return replace(private, diverged=private.diverged + 1)",
        ("unit/methods/test_spider.py",),
    ),
    Fault(
        "A personal FedNAS run trains cut networks from new weights, although they are to inherit.",
        "methods/fednas.py",
        "weights = None if self.options.inherit is False else tensors",
        "weights = None",
        ("unit/methods/test_fednas.py",),
    ),
    Fault(
        "Input normalisation of local training looks at other clients' constants.",
        "methods/local.py",
        "            mean, std = moments(data, run.task.std)\n",
        "            pass\n",
        ("unit/methods/test_local.py",),
    ),
    Fault(
        "A client's test samples count for the weight that it may claim.",
        "federation/server/reply_checks.py",
        "trained_on = samples.train",
        "trained_on = samples.total",
        (BOUNDS,),
    ),
    Fault(
        "An evaluation may be of more samples than its client has.",
        "federation/server/reply_checks.py",
        "            most_samples = samples.total\n",
        "",
        (BOUNDS,),
    ),
    Fault(
        "A late evaluation counts against the training budget.",
        "federation/server/loop.py",
        "totals = evaluation_of(exchange.accounts.bookings())",
        "totals = exchange.accounts.totals()",
        (LOOP,),
    ),
    Fault(
        "The final figures are those of the last round, although the best one was asked for.",
        "federation/server/loop.py",
        "                state=handed_on.state,\n                versions=handed_on.versions,\n",
        "",
        (LOOP,),
    ),
    Fault(
        "A method that spends nothing of its budget never ends.",
        "federation/server/settings.py",
        "max(spent, self.budget / (CAP * self.rounds))",
        "max(spent, self.budget / (CAP * CAP * self.rounds))",
        (LOOP,),
    ),
    Fault(
        "Dropout draws from wherever the process happens to stand.",
        "federation/client/site.py",
        'generator.manual_seed(run.key("global"))',
        "pass",
        (SITE,),
    ),
    Fault(
        "A small reply of an earlier round is found in the journal of the next one.",
        "federation/server/spool.py",
        "            self._file.truncate(0)\n",
        "            pass\n",
        (SPOOL,),
    ),
    Fault(
        "The privacy section of a result leaves out what the method itself sends.",
        "runs/privacy.py",
        "    for stage in stages:\n        for kind, fields",
        "    for stage in stages[:0]:\n        for kind, fields",
        ("unit/test_result.py",),
    ),
    Fault(
        "A figure of result.json that is text, or true, is taken for a number.",
        "records/record.py",
        "Figure = Annotated[float, Strict(),",
        "Figure = Annotated[float, Strict(False),",
        ("unit/test_result_types.py",),
    ),
    Fault(
        "What a later version wrote into result.json is lost when it is written again.",
        "records/record.py",
        "**(self.model_extra or {})}",
        "**{}}",
        ("unit/test_result_types.py",),
    ),
    Fault(
        "A field that an old result.json does not have is written into it with its default.",
        "records/record.py",
        "if name in self.model_fields_set:",
        "if True:",
        ("unit/test_result_types.py",),
    ),
    Fault(
        "An interval of accuracy is one of 90 percent.",
        "metrics/classification.py",
        "Z = 1.959963984540054",
        "Z = 1.6448536269514722",
        ("unit/metrics/test_classification.py",),
    ),
    Fault(
        "A client's gain compares its network with itself too.",
        "evaluate/gain.py",
        "[*row[:i], *row[i + 1 :]]",
        "[*row]",
        ("unit/evaluate/test_gain.py",),
    ),
    Fault(
        "The worst tenth of the clients is the best tenth.",
        "evaluate/summary.py",
        "worst_first[: max(1, len(worst_first) // 10)]",
        "worst_first[-max(1, len(worst_first) // 10) :]",
        ("unit/evaluate/test_summary.py",),
    ),
    Fault(
        "A difference whose interval holds 0 is called an improvement.",
        "evaluate/method_row.py",
        "and (low > 0 or high < 0)",
        "",
        (COMPARISON,),
    ),
    Fault(
        "A network of matched size has the parameters of the widest that is smaller, not the "
        "nearest.",
        "runs/comparison.py",
        "return min(near, key=lambda width: abs(size(build(width)) - target))",
        "return near[0]",
        (COMPARISON,),
    ),
    Fault(
        "The shares of classes in a split come from the same draw whatever the seed is.",
        "data/partitions/dirichlet.py",
        'rng(request.seed, "partition", "dirichlet", attempt)',
        'rng(0, "partition", "dirichlet", attempt)',
        ("unit/data/test_partition.py",),
    ),
    Fault(
        "All clients order their samples by one draw.",
        "data/parts.py",
        'return rng(seed, client, "parts").permutation(samples)',
        'return rng(seed, "parts").permutation(samples)',
        ("unit/data/test_parts.py", SPLIT),
    ),
    Fault(
        "Augmentation draws from the stream that shuffles the batches.",
        "learning/training.py",
        'amounts = run.rng("augment")',
        "amounts = shuffle",
        ("unit/test_training.py", "unit/data/augmenting/test_augment.py"),
    ),
    Fault(
        "The frozen statistics of batch normalisation move in training.",
        "learning/training.py",
        "            norm.eval()\n",
        "            pass\n",
        ("unit/test_training.py",),
    ),
    Fault(
        "A dry run counts one hop of a clustered topology only.",
        "runs/rehearsal.py",
        "        sum_of(costs),\n        down=sent.wan_down,",
        "        costs[0],\n        down=sent.wan_down,",
        ("unit/test_estimate.py",),
    ),
    Fault(
        "A dry run prices every round of a stage like its first.",
        "runs/stand_in.py",
        'return LOOK.join([f"{stage.name} {order.kind}", table, own, meta])',
        'return LOOK.join([f"{stage.name} {order.kind}", "", "", ""])',
        ("unit/test_estimate.py",),
    ),
    Fault(
        "A site takes orders that name a file as their method.",
        "deploy/site.py",
        "if is_file(method) or any(map(is_file, stamp.task.options.values())):",
        "if any(map(is_file, stamp.task.options.values())):",
        (FLOWER,),
        "flower",
    ),
    Fault(
        "A site sends tensors that its policy keeps back.",
        "deploy/site.py",
        '    check_names(reply.tensors, policy.tensors, "tensors")\n',
        "",
        (FLOWER,),
        "flower",
    ),
    Fault(
        "Facts of a site may be of any length.",
        "deploy/terms.py",
        "if len(text) > MOST_FACTS:",
        "if len(text) < 0:",
        (FLOWER,),
        "flower",
    ),
)

# Against damage, and against one client.
GUARDS = (
    Fault(
        "A flipped bit in a checkpoint or a client's state goes into the weights.",
        "federation/protocol/wire.py",
        "if actual != heading.checksum:",
        "if not actual:",
        (WIRE, CHECKPOINT, STORE),
    ),
    Fault(
        "A flipped bit in a spooled reply goes into the mean.",
        "federation/server/spool.py",
        "return checksum(reply) == receipt.checksum",
        "return True",
        (SPOOL,),
    ),
    Fault(
        "A file that is shorter than it should be is filled up with zeros.",
        "files.py",
        "path.exists() and path.stat().st_size > size",
        "path.exists()",
        ("unit/federation/test_files.py", CHECKPOINT),
    ),
    Fault(
        "A run goes on from a checkpoint whose rows of metrics are gone.",
        "federation/server/archive.py",
        "if len(rows) < checkpoint.rows:",
        "if len(rows) < 0:",
        (CHECKPOINT,),
    ),
    Fault(
        "One absurd update among two replies makes the honest one look absurdly small, or is let "
        "in.",
        "federation/server/norms.py",
        "if len(sizes) >= ENOUGH:",
        "if len(sizes) >= 1:",
        ("unit/federation/test_norms.py",),
    ),
    Fault(
        "An update is measured by the weights that came back, not by how far they moved.",
        "federation/server/update_sizes.py",
        "np.subtract(new, old, dtype=np.float64)",
        "np.array(new, dtype=np.float64)",
        ("unit/federation/test_norms.py",),
    ),
    Fault(
        "A round in which all updates are small refuses those that were usual before.",
        "federation/server/norms.py",
        "max(references)",
        "min(references)",
        ("unit/federation/test_norms.py",),
    ),
    Fault(
        "What was usual in one stage bounds the updates of the next one.",
        "federation/server/loop.py",
        "            norms={},\n",
        "",
        (LOOP,),
    ),
    Fault(
        "A capped client still has more than its share of the weights that are left.",
        "federation/server/shares.py",
        " / (1 - count * share)",
        "",
        ("unit/federation/test_shares.py",),
    ),
    Fault(
        "A server optimiser moves tensors that nobody weighed.",
        "learning/server_optimizers.py",
        "elif name in merged:\n"
        "                tensors |= self._move(state, name, mean[name], merged[name])",
        "else:\n                tensors |= self._move(state, name, mean[name], merged.get(name))",
        ("unit/federation/test_server_optimizers.py",),
    ),
    Fault(
        "A client may set a counter to whatever it likes.",
        "federation/protocol/admission.py",
        "if not counters.names:",
        "if counters.names:",
        (ADMISSION,),
    ),
    Fault(
        "A site that claims ten times as many samples as before is not named.",
        "records/claims.py",
        "now > GROWTH * before",
        "now > 100 * GROWTH * before",
        ("unit/flower/test_claims.py",),
    ),
)

SPACES = (
    Fault(
        "A cell is cut to the operations of another one.",
        "spaces/choice.py",
        "live=choice.choice[first:last]",
        "live=choice.choice[: last - first]",
        ("contract/test_spaces.py::TestOutside",),
    ),
    Fault(
        "A choice that looks at each sample is answered for the whole batch.",
        "spaces/choice.py",
        "Part(scales=scales_of(asked.weights(place, inputs)))",
        "Part(scales=scales_of([row.mean(0) if row.dim() > 1 else row for row in "
        "asked.weights(place, inputs)]))",
        ("contract/test_spaces.py::TestOutside",),
    ),
    Fault(
        "A run begins with a space that cannot be searched.",
        "runs/experiment.py",
        "    check_searched(searched(prepared.task), prepared.task)\n",
        "",
        ("integration/test_bad_spaces.py",),
    ),
    Fault(
        "A slot that leads nowhere is not named.",
        "spaces/checking.py",
        "if gradient is None or not gradient.any():",
        "if gradient is None:",
        ("integration/test_bad_spaces.py",),
    ),
    Fault(
        "The report of another process does not know the space that its run names.",
        "spaces/genotype.py",
        "            family_in(str(space))\n",
        "            pass\n",
        ("integration/test_space_from_outside.py",),
    ),
)

# A reply that brings a part, rounds without clients, stages that leave a state.
SUPERNETS = (
    Fault(
        "A tensor that may come back is taken in whatever shape it has.",
        "federation/protocol/admission.py",
        "self.tensors = {**self.required, **optional_tensors(order, fields)}",
        "self.tensors = self.required",
        (ADMISSION,),
    ),
    Fault(
        "A tensor that must come back may be left out where others may.",
        "federation/protocol/admission.py",
        "if name in expected.required:",
        "if name in expected.required and not expected.fields.optional:",
        (ADMISSION,),
    ),
    Fault(
        "A client weighs an operation that it does not bring.",
        "federation/protocol/admission.py",
        "if weight and name in expected.tensors and",
        "if weight and not name and",
        (ADMISSION,),
    ),
    Fault(
        "A single client's counters become everybody's.",
        "federation/protocol/aggregate.py",
        "            if maximum.clients >= min_clients:\n",
        "            if True:\n",
        (AGGREGATE,),
    ),
    Fault(
        "A round that asks nobody is charged as a round.",
        "federation/server/loop.py",
        "server = replace(server, rounds=0)",
        "server = replace(server, rounds=1)",
        ("unit/federation/test_rounds_without_clients.py",),
    ),
    Fault(
        "A round that asks nobody is charged the least that a round costs.",
        "federation/server/settings.py",
        'if self.unit == "rounds" or asks_nobody:',
        'if self.unit == "rounds":',
        ("unit/federation/test_rounds_without_clients.py",),
    ),
    Fault(
        "What the server computes is not charged at equal MACs.",
        "records/totals.py",
        '"macs": self.macs + self.server_macs',
        '"macs": self.macs',
        ("unit/federation/test_rounds_without_clients.py",),
    ),
    Fault(
        "What the server computes while it merges is not counted.",
        "federation/server/loop.py",
        "server_macs=planned.macs + merging.macs)",
        "server_macs=planned.macs)",
        ("unit/federation/test_rounds_without_clients.py",),
    ),
    Fault(
        "A round that asks nobody frees checkpoints that were held because most clients failed.",
        "federation/server/loop.py",
        "        if asks_nobody:\n            return checkpoint.held\n",
        "",
        ("unit/federation/test_rounds_without_clients.py",),
    ),
    Fault(
        "All bodies of a round are on the disk at once.",
        "federation/engines/bodies.py",
        "            if len(self.paths) < self.most:\n                return\n",
        "            return\n",
        ("unit/federation/test_bodies.py",),
    ),
    Fault(
        "More orders wait in a worker's socket than it holds: one that hangs would stop the "
        "server.",
        "federation/engines/local.py",
        "if not queue or not has_room_for(worker, queue[0]):",
        "if not queue:",
        ("unit/federation/test_bodies.py",),
    ),
    Fault(
        "A weight that trains beside a frozen one gets no gradient where operations are merged.",
        "nets/two_part_batches.py",
        "            if any(weights_wanted):",
        "            if weights_wanted[0]:",
        ("unit/spaces/test_merged.py",),
    ),
    Fault(
        "Weights learn from validation samples where both batches of a search step go in one pass.",
        "nets/two_part_batches.py",
        "convs.weight_grad(outer[: reach.trained], x[: reach.trained], weight)",
        "convs.weight_grad(outer, x[: outer.shape[0]], weight)",
        ("unit/spaces/test_merged.py",),
    ),
    Fault(
        "BN normalises training and validation samples together where they go in one pass.",
        "nets/two_part_batches.py",
        "statistics = self._normalise(x[:trained], scale, y[:trained])",
        "statistics = self._normalise(x, scale, y)",
        ("unit/spaces/test_merged.py",),
    ),
    Fault(
        "A body is deleted while an order waits for a worker that has yet to map it.",
        "federation/engines/bodies.py",
        "            if key not in in_use:\n                self.paths.pop(key)",
        "            if True:\n                self.paths.pop(key)",
        ("unit/federation/test_bodies.py",),
    ),
    Fault(
        "Tensors that were changed in place are taken for those of an earlier checkpoint.",
        "federation/server/origins.py",
        "is_same = self.tensor() is tensor and version_of(tensor) == self.version",
        "is_same = self.tensor() is tensor",
        (f"{CHECKPOINT}::test_tensors_that_are_others_are_written",),
    ),
    Fault(
        "The checkpoint that has the tensors of later ones is deleted.",
        "federation/server/archive.py",
        "            needed.add(elsewhere)\n",
        "",
        (f"{CHECKPOINT}::test_tensors_that_did_not_change_are_not_written_again",),
    ),
    Fault(
        "Nothing is left to go back to where the checkpoint that has everybody's tensors is "
        "damaged.",
        "federation/server/archive.py",
        "            if second is not None:\n                needed.add(second)\n",
        "",
        (f"{CHECKPOINT}::test_where_the_tensors_are_damaged_the_run_goes_back_before_them",),
    ),
    Fault(
        "Unchanged tensors are written again with every checkpoint.",
        "federation/server/archive.py",
        "            elsewhere=self._elsewhere(checkpoint),\n",
        "",
        (f"{CHECKPOINT}::test_tensors_that_did_not_change_are_not_written_again",),
    ),
    Fault(
        "A stage leaves the state of its last round, where the best one goes on.",
        "federation/server/loop.py",
        "self._keep_left_state(stage - 1, handed_on.state)",
        "self._keep_left_state(stage - 1, checkpoint.state)",
        ("unit/federation/test_left_states.py",),
    ),
    Fault(
        "What a stage left before it was taken back stays in the folder.",
        "federation/server/loop.py",
        "                self.archive.forget_stage_state(stage.leaves)\n                continue\n",
        "                continue\n",
        ("unit/federation/test_left_states.py",),
    ),
    Fault(
        "Of two limits the looser one counts.",
        "cost/limits.py",
        "limits[field.name] = min((most",
        "limits[field.name] = max((most",
        ("unit/cost/test_limits.py",),
    ),
    Fault(
        "A site reads its device's limit once for all orders.",
        "federation/client/site.py",
        "            limit=self.limit(),\n",
        "            limit=self.__dict__.setdefault('read_limit', self.limit()),\n",
        (SITE,),
    ),
    Fault(
        "A client that declines work is taken for one whose code is wrong.",
        "federation/client/site.py",
        "            except Declined as error:\n"
        '                fault = Fault("refused", str(error))\n',
        "",
        (SITE,),
    ),
    Fault(
        "A method is not asked what it has against a reply.",
        "federation/server/reply_checks.py",
        "return admission.refuse_by_method(self.method, order, reply, trained_on)",
        "return None",
        ("unit/federation/test_method_checks.py",),
    ),
    Fault(
        "A reply at which a method's check stumbles ends the run.",
        "federation/protocol/admission.py",
        '    except Exception as error:\n        return f"it could not be checked',
        '    except AssertionError as error:\n        return f"it could not be checked',
        ("unit/federation/test_method_checks.py",),
    ),
    Fault(
        "A weight by key counts for all keys of its client.",
        "federation/protocol/aggregate.py",
        "return reply.weight.get(key, 0.0)",
        "return max(reply.weight.values(), default=0.0)",
        (AGGREGATE,),
    ),
)

CHAIN = "unit/spaces/test_chains.py"

CHAINS = (
    Fault(
        "A light GRU keeps what it should forget.",
        "spaces/chains/cells.py",
        "kept * state + (1 - kept) * torch.tanh(candidate)",
        "(1 - kept) * state + kept * torch.tanh(candidate)",
        (f"{CHAIN}::test_a_light_gru_by_hand",),
    ),
    Fault(
        "A convolution over symbols sees the next ones.",
        "spaces/chains/ops.py",
        "(4, 0))",
        "(2, 2))",
        (f"{CHAIN}::test_scores_of_every_position", f"{CHAIN}::test_a_causal_convolution_by_hand"),
    ),
    Fault(
        "The paper's MACs forget the ReLU behind a convolution.",
        "spaces/chains/cost.py",
        "products + 3 * elements",
        "products + 2 * elements",
        ("unit/spaces/test_chain_sizes.py",),
    ),
    Fault(
        "A message makes a site read a TOML file of its choice.",
        "registry.py",
        'in name or name.endswith((".json", ".toml"))',
        'in name or name.endswith(".json")',
        (f"{CHAIN}::test_a_message_makes_nobody_read_a_file",),
    ),
)

STAGES = "unit/methods/test_fedoras_stages.py"

FEDORAS = (
    Fault(
        "A client whose reply was lost is not sent again what it may not have kept.",
        "methods/fedoras_cache.py",
        "            if order.client in answered:\n",
        "            if True:\n",
        (f"{STAGES}::TestCache",),
    ),
    Fault(
        "A tier's network that all may train is trained by its own clients alone.",
        "methods/fedoras_tiers.py",
        'if whom == "all":\n        return list',
        'if whom == "everybody":\n        return list',
        (f"{STAGES}::TestGivenPaths",),
    ),
    Fault(
        "The bytes of a stage count those of the stages before it too.",
        "runs/stage_accounts.py",
        "        before = after\n",
        "",
        (f"{STAGES}::TestAccounts",),
    ),
    Fault(
        "A high accuracy counts as a bad figure when scores are compared with what they foretold.",
        "runs/tier_results.py",
        "    sign = -1.0",
        "    sign = 1.0",
        (f"{STAGES}::TestTop",),
    ),
    Fault(
        "What the whole supernet would have taken is told without its lines in the header.",
        "federation/protocol/packing.py",
        "size_of(entries) + sum(len(table_line(entry)) + 1 for entry in entries)",
        "size_of(entries)",
        (STAGES,),
    ),
    Fault(
        "A tier whose network nobody can train has its turn.",
        "methods/fedoras_tiers.py",
        'highest: int = max(state.meta["tier_of"])',
        'highest: int = len(state.meta["tiers"])',
        (STAGES,),
    ),
    Fault(
        "By default operations of a small space can never be sent.",
        "methods/fedoras_options.py",
        "if half < least_for_all:",
        "if half < 0:",
        ("unit/methods/test_fedoras.py",),
    ),
)

PARTS = (
    Fault(
        "Parts of a supernet are added beside their place where a key is missing between them.",
        "federation/protocol/aggregate.py",
        "entry.begin == self.end and place == self.place + elements",
        "entry.begin == self.end",
        (AGGREGATE,),
    ),
    Fault(
        "A site that keeps its device to itself tells it all the same.",
        "deploy/site.py",
        "if not asked or not matches(DEVICE, policy.fields):",
        "if not asked:",
        (FLOWER,),
        marker="flower",
    ),
    Fault(
        "A site whose device allows less than a tier's networks is dealt to it.",
        "deploy/devices.py",
        "dearest_within(tier, unit, table) > most",
        "tier.limit.get(unit, 0) > 2 * most",
        ("unit/flower/test_site_tiers.py",),
    ),
)

TEXT_LOSS = "unit/methods/test_text_loss.py"

TEXT = (
    Fault(
        "At every position but the last a symbol is taught to predict itself.",
        "learning/loss.py",
        "torch.cat([batch.x[:, 1:].long(), batch.y.unsqueeze(1)], dim=1)",
        "torch.cat([batch.x[:, :-1].long(), batch.y.unsqueeze(1)], dim=1)",
        (TEXT_LOSS,),
    ),
    Fault(
        "Networks over symbols are trained at the last position only.",
        "spaces/paths.py",
        "isinstance(net.net, EveryPosition)",
        "isinstance(net, EveryPosition)",
        (TEXT_LOSS,),
    ),
)

FJORD = "unit/methods/test_fjord.py"
HETEROFL = "unit/methods/test_heterofl.py"
ZEROFL = "unit/methods/test_zerofl.py"
AUTO_TIERS = "unit/methods/test_auto_tiers.py"

WIDTHS = (
    Fault(
        "A batch of a narrow width forgets what it learned: the widest network is not told.",
        "methods/fjord.py",
        "inside.put(net.state_dict(), family.widest.state_dict())",
        "pass",
        (FJORD,),
    ),
    Fault(
        "Of a narrow LSTM, all rows are those of the first gate.",
        "nets/nesting.py",
        "        if dimension == 0:\n            runs = gates",
        "        if dimension == 2:\n            runs = gates",
        ("unit/nets/test_nesting.py",),
    ),
    Fault(
        "HeteroFL collects the statistics of a network without its scaler.",
        "methods/heterofl.py",
        "            weights = with_scaler(weights, scaled, rate)\n",
        "",
        (f"{HETEROFL}::test_statistics_of_the_finished_network",),
    ),
    Fault(
        "A sparse layer learns from all of its input.",
        "learning/sparse.py",
        "            return pruned(tensor, share)\n        return tensor.detach()",
        "            return tensor.detach()\n        return tensor.detach()",
        (ZEROFL,),
    ),
    Fault(
        "Absurd numbers in the kept part of a reply are not measured.",
        "methods/zerofl.py",
        "tensors[name] = unpacked(reply.tensors, name, order.tensors[name])",
        "tensors[name] = order.tensors[name]",
        (ZEROFL,),
    ),
    Fault(
        "A client of auto-tiers always trains the width of the same draw.",
        "methods/auto_tiers.py",
        'draws = r.rng("widths").integers(len(widths), size=len(clients))',
        "draws = [client % len(widths) for client in clients]",
        (AUTO_TIERS,),
    ),
    Fault(
        "auto-tiers trains without the client's prior, and answers with it.",
        "methods/auto_tiers.py",
        "with shifted(net, shift_of(self.options, data, run.task)):",
        "with shifted(net, None):",
        (f"{AUTO_TIERS}::test_with_one_width_it_trains_as_auto_does",),
    ),
    Fault(
        "auto-tiers judges all widths with the statistics of the widest one's first channels.",
        "methods/auto_tiers.py",
        "weights.update(without_prefix(statistics_prefix(width), order.tensors))",
        """widest = without_prefix(statistics_prefix(order.meta["width"]), order.tensors)
            own = without_prefix(statistics_prefix(width), order.tensors)
            for name, t in own.items():
                weights[name] = widest[name][: len(t)] if t.dim() else t""",
        (f"{AUTO_TIERS}::test_a_client_judges_every_width_as_it_would_answer_with_it",),
    ),
    Fault(
        "auto-tiers judges widths after their validation samples were trained on.",
        "methods/auto_tiers.py",
        'return "judge"\n        if phase == "judged":\n            return "cool"\n'
        '        if phase == "cool" and self.cooling_is_over(state, r):\n            return "end"',
        'return "cool"\n        if phase == "judged":\n            return "end"\n'
        '        if phase == "cool" and self.cooling_is_over(state, r):\n'
        '            return "judge"',
        (
            f"{AUTO_TIERS}::test_all_widths_are_judged_by_everybody_before_held_back_samples_are_trained_on",
        ),
    ),
)

DEVICES = (
    Fault(
        "The fastest phones are in the tier of the smallest devices.",
        "cost/devices.py",
        "key=lambda client: (devices[client].macs_per_second,",
        "key=lambda client: (-devices[client].macs_per_second,",
        ("unit/cost/test_devices.py",),
    ),
    Fault(
        "The time of a path counts the first operation of every layer beside the chosen one.",
        "cost/latencies.py",
        "        fixed = fixed - (with_op[0] - shared)\n",
        "",
        ("unit/cost/test_latencies.py",),
    ),
    Fault(
        "A client draws its paths within the milliseconds of any device.",
        "methods/fedoras.py",
        'meta["latency"] = tier.latency.to_plain()',
        "pass",
        ("unit/methods/test_fedoras_latency.py",),
    ),
    Fault(
        "New images are not resized as those of the run were.",
        "export/newdata.py",
        "images_alone = resized(images_alone, expected.resize, expected.fit)",
        "pass",
        ("integration/test_resized.py",),
    ),
    Fault(
        "An image that shrinks loses pixels that a new one covers in part.",
        "data/resizing.py",
        "end = np.minimum((old + 1) * after, (new + 1) * before)",
        "end = np.where((old + 1) * after <= (new + 1) * before, (old + 1) * after, 0)",
        ("unit/data/test_resizing.py",),
    ),
)

TIERS_PAGE = "unit/report/test_tiers_page.py"
TIERS_BESIDE = "unit/report/test_tiers_beside.py"

TIERS = (
    Fault(
        "A tier's front shows paths that its devices cannot run.",
        "report/sections/fronts.py",
        "if unit not in costs or costs[unit] > most:",
        "if unit in costs and costs[unit] > most:",
        (f"{TIERS_PAGE}::test_which_scored_paths_a_tier_may_have",),
    ),
    Fault(
        "The table of tiers shows the control's accuracy in the column of the chosen path.",
        "report/tier_tables.py",
        "        score_text(tier.validation),\n",
        "        score_text(tier.control.validation),\n",
        (f"{TIERS_PAGE}::test_the_table_of_tiers",),
    ),
    Fault(
        "A tier of one method is compared with the first tier of the other one.",
        "evaluate/tier_rows.py",
        "compared_with = networks_of_tier(first, number)",
        "compared_with = networks_of_tier(first, 1)",
        (f"{TIERS_BESIDE}::test_a_tier_is_compared_with_the_same_tier_of_the_first_method",),
    ),
    Fault(
        "Clients of runs whose tiers were dealt otherwise are put beside each other.",
        "report/sections/method_tiers.py",
        "if not runs or client_tiers(result) == client_tiers(runs[0].result):",
        "if True:",
        (f"{TIERS_BESIDE}::test_another_deal_of_tiers_is_not_put_beside",),
    ),
    Fault(
        "Whole supernets' bytes stand in the report as what was sent.",
        "report/sections/stages.py",
        "[stage.down, stage.full_down, stage.up]",
        "[stage.full_down, stage.full_down, stage.up]",
        (f"{TIERS_PAGE}::test_bytes_stand_beside_those_of_whole_supernets",),
    ),
)

OWN_SAMPLES = "integration/test_searches.py::TestOwnSamples"
SEARCHES = (
    Fault(
        "A resumed run leaves the rows of scores.jsonl that a kill left half written.",
        "records/scores.py",
        "append(path, content[len(present) :])",
        'append(path, content[content.rfind(b"{") :])',
        ("unit/test_scores.py::TestFile",),
    ),
    Fault(
        "A search scores paths again that an earlier search has scored.",
        "records/searches.py",
        'files = [run / SCORES_FILE, *sorted((run / SEARCHES).glob(f"*/{SCORES_FILE}"))]',
        "files = [run / SCORES_FILE]",
        ("integration/test_searches.py::TestAnswers::test_it_goes_on_and_nothing_is_scored_twice",),
    ),
    Fault(
        "A search takes scores on somebody's own samples for scores on the run's.",
        "records/searches.py",
        'return f"scores-{data.digest[:DIGITS]}.jsonl"',
        "return SCORES_FILE",
        (f"{OWN_SAMPLES}::test_in_a_federation_all_candidates_are_scored_anew",),
    ),
    Fault(
        "Labels do not count in the digest of samples, so that scores by other labels are taken.",
        "runs/central_set.py",
        "for tensor in (samples.x, samples.y):",
        "for tensor in (samples.x,):",
        ("unit/test_central_set.py",),
    ),
    Fault(
        "On somebody's own samples a search begins with the worst paths that the run has scored.",
        "searchers/budget_search.py",
        "(scores[path].loss, space.cost(path), path)",
        "(-scores[path].loss, space.cost(path), path)",
        ("unit/searchers/test_budget_search.py::TestSearch", OWN_SAMPLES),
    ),
    Fault(
        "A search that was stopped loses its scores on somebody's own samples.",
        "records/searches.py",
        'return file.name == SCORES_FILE or fnmatch(file.name, "scores-*.jsonl")',
        "return file.name == SCORES_FILE",
        (f"{OWN_SAMPLES}::test_a_search_that_was_stopped_keeps_its_scores",),
    ),
    Fault(
        "Fractions go through a network that was trained on a federation's bytes.",
        "export/newdata.py",
        "x.max() <= 1 < usual:",
        "x.max() <= 1 < 0:",
        ("unit/export/test_units.py",),
    ),
    Fault(
        "The front has points that are dearer and no better.",
        "searchers/nsga2.py",
        "if second > last[1] or (second == last[1] and first > last[0]):",
        "if second > last[1]:",
        ("unit/searchers/test_budget_search.py::TestFronts",),
    ),
)

REPEATED = "unit/cost/test_repeated.py"
SPEED = (
    Fault(
        "A step that trains the head alone is charged like one of the whole network.",
        "cost/repeated.py",
        "(name, weight.requires_grad) for name, weight in",
        "name for name in",
        (f"{REPEATED}::test_layers_that_do_not_train_are_another_kind_of_step",),
    ),
    Fault(
        "An epoch's last batch, which is smaller, is charged like the others.",
        "cost/repeated.py",
        "tuple(shape))",
        "len(shape))",
        (REPEATED,),
    ),
    Fault(
        "A network from outside that is filled again is believed to cost the same every time.",
        "networks/building.py",
        "if NETWORKS.is_built_in(name):\n            model",
        "if key is not None:\n            model",
        (f"{REPEATED}::test_a_network_from_a_file_says_nothing",),
    ),
    Fault(
        "Replies of a hop stay in the server's memory, however many there are.",
        "federation/server/exchange.py",
        "            self.kept_bytes += size\n",
        "",
        ("unit/federation/test_kept_replies.py",),
    ),
)

EVIDENCE = (
    Fault(
        "A dry run carries out every order whose part of the network is new, which are all of "
        "them.",
        "runs/stand_in.py",
        "part_answers.are_enough(hop.round)",
        "not part_answers",
        ("unit/test_estimate.py::test_of_orders_that_bring_parts_a_round_carries_two_out",),
    ),
    Fault(
        "In a dry run the first part of a round stands for all the others.",
        "runs/stand_in.py",
        "self.times_used += 1",
        "pass",
        ("unit/test_estimate.py::test_answers_to_parts_take_turns",),
    ),
    Fault(
        "Samples of a data set that is mapped from a file stay in that file, where torch warns of "
        "writing.",
        "data/mapped_clients.py",
        "    np.copyto(copy.numpy(), values)\n    return copy\n",
        "    return torch.from_numpy(values)\n",
        (
            "unit/data/test_mapped_clients.py::test_samples_that_nobody_may_write_to_are_copied_without_a_warning",
        ),
    ),
)

TWO_CLASSES = "unit/report/test_two_classes.py"

HONEST = (
    Fault(
        "Clients under methods have a heat-map by AUC where there are ten classes.",
        "report/sections/method_clients.py",
        "if story.result is not None and name in story.result.columns_of_classes:",
        "if story.result is not None:",
        (f"{TWO_CLASSES}::test_of_ten_classes_no_table_has_auc",),
    ),
    Fault(
        "The heat-map by AUC shows balanced accuracy.",
        "report/sections/method_clients.py",
        'auc = by_figure_beside(stories, "auc")',
        'auc = by_figure_beside(stories, "balanced_accuracy")',
        (f"{TWO_CLASSES}::test_every_client_under_every_method_by_auc",),
    ),
    Fault(
        "The rounds of a run have no AUC.",
        "report/sections/convergence.py",
        "for name, mean in means.items():",
        "for name, mean in list(means.items())[:1]:",
        (f"{TWO_CLASSES}::test_the_rounds_of_a_run",),
    ),
    Fault(
        "What a stage ended with has no balanced accuracy.",
        "runs/result_of_rounds.py",
        "ends.append(end.replace(**evaluation.beside, **evaluation.shared_beside))",
        "ends.append(end.replace(**evaluation.shared_beside))",
        ("unit/test_result.py::test_what_earlier_stages_ended_with",),
    ),
    Fault(
        "A stage's AUC is averaged over some of the seeds.",
        "evaluate/judgement.py",
        "        if None not in figures:\n",
        "        if True:\n",
        (
            "unit/report/test_tables.py::test_what_stages_have_beside_accuracy_counts_where_every_seed_has_it",
        ),
    ),
    Fault(
        "The tuned supernet is missing from the page of a run.",
        "report/sections/stages.py",
        'return section("stages", "Stages", ends(story))',
        'return section("stages", "Stages")',
        (f"{TWO_CLASSES}::test_the_tuned_supernet_has_its_line_on_the_page_of_a_run",),
    ),
    Fault(
        "A difference of balanced accuracies has the wrong sign.",
        "report/comparison_table.py",
        'cells.append(row.judged_by.text_beside(own.mean - first.mean, "+"))',
        'cells.append(row.judged_by.text_beside(first.mean - own.mean, "+"))',
        ("unit/report/test_tables.py::test_differences_of_what_stands_beside_accuracy",),
    ),
)

CLUSTERING = "unit/federation/test_clustering.py"
HISTOGRAMS = "unit/federation/test_histograms.py"
LABEL_COUNTS = "integration/test_label_counts.py"

LABELS = (
    Fault(
        "Of equally near clients the one with the highest id joins a cluster.",
        "federation/protocol/clustering.py",
        "return int(ids[near].min())",
        "return int(ids[near].max())",
        (CLUSTERING,),
    ),
    Fault(
        "Equal fractions are taken for different ones, by their last bits.",
        "federation/protocol/clustering.py",
        "near = np.flatnonzero(quotients <= quotients.min() * (1 + ROUNDING))",
        "near = np.flatnonzero(differences == differences[quotients.argmin()])",
        (CLUSTERING,),
    ),
    Fault(
        "A client that left its place to another is still found there.",
        "federation/protocol/clustering.py",
        "            self.totals[place] = self.totals[last]\n",
        "",
        (CLUSTERING,),
    ),
    Fault(
        "A cluster has one member more than Q, as it is printed.",
        "federation/protocol/clustering.py",
        "while unassigned and len(members) < size:",
        "while unassigned and len(members) <= size:",
        (CLUSTERING,),
    ),
    Fault(
        "A cluster is closed when the nearest client would make it too slow, though another one "
        "fits.",
        "federation/protocol/clustering.py",
        "            return client\n    return None\n",
        "            return client\n        break\n    return None\n",
        (CLUSTERING,),
    ),
    Fault(
        "Large counts overflow.",
        "federation/protocol/clustering.py",
        "LARGEST_IN_INT64 = 2**62",
        "LARGEST_IN_INT64 = 2**200",
        (CLUSTERING,),
    ),
    Fault(
        "Updates are put together that are alike.",
        "federation/protocol/clustering.py",
        "growth = 2 * self.with_cluster + np.diagonal(self.products)",
        "growth = -2 * self.with_cluster + np.diagonal(self.products)",
        (CLUSTERING,),
    ),
    Fault(
        "One draw of noise serves every E, so that two of them give the counts away.",
        "federation/protocol/histograms.py",
        "repr(epsilon), label, count]",
        "label, count]",
        (HISTOGRAMS,),
    ),
    Fault(
        "Two sets of data have the same noise, so that their difference is exact.",
        "federation/protocol/histograms.py",
        "repr(epsilon), label, count]",
        "repr(epsilon), label]",
        (HISTOGRAMS,),
    ),
    Fault(
        "Noise is not a difference: it is never below 0.",
        "federation/protocol/histograms.py",
        "yield first - second",
        "yield first",
        (HISTOGRAMS,),
    ),
    Fault(
        "A count below 0 is accepted.",
        "federation/protocol/histograms.py",
        "not 0 <= count <= MOST_COUNT",
        "not count <= MOST_COUNT",
        (HISTOGRAMS,),
    ),
    Fault(
        "A confusion matrix leaves beside noisy label counts.",
        "federation/server/settings.py",
        "return self.histograms is None or not self.histograms.is_noisy",
        "return True",
        (LABEL_COUNTS,),
    ),
    Fault(
        "Label counts are asked for of those alone who work.",
        "federation/server/exchange.py",
        "return settings.histograms is not None and stage == 0",
        "return False",
        (LABEL_COUNTS,),
    ),
    Fault(
        "The secret of a simulation is a file, so that equal seeds give other runs.",
        "federation/engines/worker.py",
        "            secret=partial(simulated_secret, self.seed),\n",
        "",
        (LABEL_COUNTS,),
    ),
    Fault(
        "A method divides training samples without asking the site.",
        "deploy/divisions.py",
        "            self.allow(self.begin, self.begin + at, self.begin + samples)\n",
        "",
        ("unit/flower/test_site_answers.py",),
    ),
    Fault(
        "Figures of two seeds may single out one sample.",
        "deploy/divisions.py",
        "if ordering.samples == new.samples:",
        "if ordering.samples < 0:",
        ("unit/flower/test_experiments.py",),
    ),
    Fault(
        "An experiment may change how its method divides samples.",
        "deploy/experiments.py",
        "if digests.get(name) != digest:",
        "if name not in digests:",
        ("unit/flower/test_site_answers.py",),
    ),
    Fault(
        "A site works on the same order again and again.",
        "deploy/experiments.py",
        '        ("repeated orders", record.repeats, policy.evaluations),\n',
        "",
        ("unit/flower/test_site_answers.py",),
    ),
    Fault(
        "A rejected experiment waits for approval again.",
        "deploy/approval.py",
        "if asked.id in approvals.rejected:",
        "if False:",
        ("unit/flower/test_site_answers.py",),
    ),
    Fault(
        "A line of deeply nested values stops the audit log.",
        "deploy/audit_lines.py",
        "        reading.bounded(value)\n",
        "",
        ("unit/flower/test_site_answers.py",),
    ),
    Fault(
        "An experiment that nobody can read locks the list of those that wait.",
        "deploy/approval.py",
        '        reading.bounded({"task": asked.task, "terms": asked.terms})\n',
        "        pass\n",
        ("unit/flower/test_site_answers.py",),
    ),
    Fault(
        "A server fills a site's disk with images of many sizes.",
        "deploy/surveys.py",
        "if len(answered.sizes) >= policy.sizes:",
        "if False:",
        ("unit/flower/test_surveys.py",),
    ),
    Fault(
        "A survey may take as long as it likes.",
        "deploy/site.py",
        "with reading_within(kit.policy.seconds):",
        "if True:",
        ("unit/flower/test_surveys.py",),
    ),
    Fault(
        "Sums of a table leave before and after one row came.",
        "deploy/surveys.py",
        "if changed < policy.min_part:",
        "if changed < 1:",
        ("unit/flower/test_surveys.py",),
    ),
    Fault(
        "Every experiment has a secret of its own at a site, so that a server can average over "
        "them.",
        "deploy/site.py",
        "return ClientStore(states).secret()",
        "return ClientStore(states / stamp.experiment).secret()",
        (FLOWER,),
        "flower",
    ),
    Fault(
        "A site tells label counts in whatever way it is asked.",
        "deploy/policy.py",
        "return self.histograms == asked",
        "return True",
        ("unit/flower/test_histogram_policy.py",),
    ),
    Fault(
        "The noise of a simulation is said to come from nowhere.",
        "runs/privacy.py",
        "    if not federated:\n",
        "    if federated:\n",
        (LABEL_COUNTS,),
    ),
)

CLOCK = "unit/federation/test_clock.py"
ROUNDS_BY_CLOCK = "unit/federation/test_simulated_rounds.py"
AVAILABILITY = "unit/federation/test_availability.py"
LIMITS = "unit/federation/test_budgets.py"

BY_THE_CLOCK = (
    Fault(
        "All members of a cluster have the aggregator's whole LAN for themselves.",
        "federation/server/work_times.py",
        "gathering.lan / near",
        "gathering.lan",
        (CLOCK,),
    ),
    Fault(
        "Members in another place talk with their aggregator over the LAN.",
        "federation/server/work_times.py",
        "elif device.place == gathering.place:",
        "elif True:",
        (CLOCK,),
    ),
    Fault(
        "Training and searching always follow one another.",
        "federation/server/work_times.py",
        'if phases == "parallel":',
        "if False:",
        (CLOCK,),
    ),
    Fault(
        "A reply that cannot be used is one of those that a round waits for.",
        "federation/server/clock.py",
        "if client not in refused}",
        "if True}",
        (CLOCK,),
    ),
    Fault(
        "One who leaves is booked with all of its work.",
        "federation/server/work_times.py",
        "if worked >= needed:",
        "if True:",
        (CLOCK,),
    ),
    Fault(
        "A client that is late keeps its new state.",
        "federation/server/exchange.py",
        "receipts = self._bounded(orders, self._timed(receipts, times))",
        "self._timed(receipts, times)\n        receipts = self._bounded(orders, receipts)",
        (ROUNDS_BY_CLOCK,),
    ),
    Fault(
        "A round that everybody left stops the run.",
        "federation/server/exchange.py",
        "if len(accepted) < least <= len(accepted) + len(times.lost_work):",
        "if False:",
        (ROUNDS_BY_CLOCK,),
    ),
    Fault(
        "The simulated clock forgets how long it waited for somebody to come.",
        "federation/server/loop.py",
        "span = Span(view.now, view.now + gathered.seconds)",
        "span = Span(at.totals.simulated, at.totals.simulated + gathered.seconds)",
        (ROUNDS_BY_CLOCK,),
    ),
    Fault(
        "A round that went over a limit is kept.",
        "federation/server/loop.py",
        "        if limit is not None:\n            return OverBudget",
        "        if False:\n            return OverBudget",
        (ROUNDS_BY_CLOCK,),
    ),
    Fault(
        "What a dropped round left in the journal is taken for replies of the next stage.",
        "federation/server/loop.py",
        "        self.spool.clear()\n        self.over_budget = over",
        "        self.over_budget = over",
        (ROUNDS_BY_CLOCK,),
    ),
    Fault(
        "Schedules follow the rounds alone, whatever is spent of other limits.",
        "federation/server/planning.py",
        "spent=max(checkpoint.spent, spent_by_limits),",
        "spent=checkpoint.spent,",
        (ROUNDS_BY_CLOCK,),
    ),
    Fault(
        "A limit leaves no room for a last round of its own.",
        "federation/server/settings.py",
        "return Reserve(len(open_ended), 1 / self.participation)",
        "return Reserve()",
        (ROUNDS_BY_CLOCK,),
    ),
    Fault(
        "Describing is charged to a limit.",
        "federation/server/budgets.py",
        '"wan": totals.down + totals.up - describing,',
        '"wan": totals.down + totals.up,',
        (LIMITS,),
    ),
    Fault(
        "Who is away is drawn.",
        "types.py",
        "if client in self.present]",
        "if True]",
        ("unit/test_types.py",),
    ),
    Fault(
        "A client that is there when the period begins anew leaves at its end.",
        "federation/server/availability.py",
        "remaining += first.end",
        "remaining += 0",
        (AVAILABILITY,),
    ),
    Fault(
        "Clients leave in the same rounds whatever the seed is.",
        "federation/server/availability.py",
        'rng(self.seed, number, "dropout", client)',
        'rng(0, number, "dropout", client)',
        (ROUNDS_BY_CLOCK,),
    ),
    Fault(
        "A target is read off test data.",
        "evaluate/target.py",
        'evaluation.part != "validation"',
        'evaluation.part == ""',
        ("unit/test_target.py",),
    ),
    Fault(
        "Searching counts as training.",
        "cost/meter.py",
        "        if OPEN_SEARCHES:\n",
        "        if False:\n",
        ("unit/test_searching_metered.py",),
    ),
)

RUNS_IN_CLUSTERS = "unit/federation/test_clustered_runs.py"
IN_CLUSTERS = "unit/federation/test_topology.py"

CLUSTERS = (
    Fault(
        "What members of a late cluster lost themselves is wasted twice.",
        "federation/server/cluster_round.py",
        "            wasted_macs -= lost.macs\n",
        "",
        (IN_CLUSTERS,),
    ),
    Fault(
        "Of a cluster that sends nothing only the last hop is wasted.",
        "federation/server/cluster_round.py",
        "if not self.is_late and not self.is_lost:",
        "if not self.is_late:",
        (IN_CLUSTERS,),
    ),
    Fault(
        "A run of FedorAS ends when all clients but one are away.",
        "methods/fedoras.py",
        'self.options.aggregate == "opa" and r.active < LEAST_CLIENTS',
        'self.options.aggregate == "opa" and len(clients) < LEAST_CLIENTS',
        ("unit/methods/test_fedoras.py::test_one_client_that_is_there_is_asked",),
    ),
    Fault(
        "What an aggregator says to itself is counted.",
        "federation/server/cluster_round.py",
        "        if work.client == aggregator:\n            return Transfer()\n",
        "",
        (IN_CLUSTERS,),
    ),
    Fault(
        "A lost aggregator is noticed at once.",
        "federation/server/cluster_round.py",
        '            self._pass("heartbeat", self.heartbeats.wait)\n',
        "",
        (IN_CLUSTERS,),
    ),
    Fault(
        "A lost aggregator speaks for its cluster all the same.",
        "federation/server/cluster_round.py",
        "while self.aggregator is not None and self.aggregator not in present:",
        "while False:",
        (IN_CLUSTERS,),
    ),
    Fault(
        "The one that takes over has all replies already.",
        "federation/server/cluster_round.py",
        "            self._collect_again(list(present.values()), hop)\n",
        "",
        (IN_CLUSTERS,),
    ),
    Fault(
        "Plain numbers go up as means over clients, not samples.",
        "federation/server/cluster_round.py",
        "        weight = samples_of(reply)\n",
        "        weight = 1.0\n",
        (IN_CLUSTERS,),
    ),
    Fault(
        "Who left in a hop is asked again in the next.",
        "federation/server/cluster_round.py",
        "if order.client not in self.gone and not self.clock.is_gone(order.client, hop):",
        "if True:",
        (IN_CLUSTERS,),
    ),
    Fault(
        "Every round draws a cohort, whatever clusters there are.",
        "federation/server/planning.py",
        "            cohort = clustering.clients\n",
        "            cohort = None\n",
        (RUNS_IN_CLUSTERS,),
    ),
    Fault(
        "A checkpoint forgets the clusters.",
        "federation/server/checkpoint.py",
        "        if self.clustering is not None:\n"
        '            meta["clustering"] = self.clustering.to_json()\n',
        "",
        (RUNS_IN_CLUSTERS,),
    ),
    Fault(
        "A flat stage of a clustered run is clustered.",
        "federation/server/planning.py",
        "        if stage.is_flat:\n            return Flat()\n        return self.topology\n",
        "        return self.topology\n",
        (RUNS_IN_CLUSTERS,),
    ),
)

FINCH = "unit/methods/test_finch.py"
ALLOCATION = "unit/searchers/test_allocation.py"
SUB_SPACES = (
    Fault(
        "Algorithm 3 gives the best sub-space to the most skewed cluster.",
        "searchers/allocation.py",
        "key=lambda space: (-worths[space], space)",
        "key=lambda space: (worths[space], space)",
        (ALLOCATION,),
    ),
    Fault(
        "A sub-space that nobody scored counts as one that is always right.",
        "searchers/allocation.py",
        "            return [1 / other for other in costs]\n",
        "            accuracy = 1.0\n",
        (ALLOCATION,),
    ),
    Fault(
        "Optimisers begin anew with every hop.",
        "stages/groups.py",
        'own.meta["round"] != run.round',
        "True",
        (f"{FINCH}::test_optimisers_remember_a_round_and_no_more",),
    ),
    Fault(
        "Optimisers go on with what an earlier round left.",
        "stages/groups.py",
        'if own is None or own.meta["round"] != run.round:',
        "if own is None:",
        (f"{FINCH}::test_optimisers_remember_a_round_and_no_more",),
    ),
    Fault(
        "The entries of α that a cluster sends up land on the first operations of their slots.",
        "stages/groups.py",
        'return {f"{ALPHA}{name}": (live,) for',
        'return {f"{ALPHA}{name}": (tuple(range(len(live))),) for',
        (f"{FINCH}::test_merge",),
    ),
    Fault(
        "The whole supernet goes to every cluster.",
        "methods/finch.py",
        "            tensors = self.part(state.tensors, arch)\n",
        "            tensors = {**shared(state), **self.part(state.tensors, arch)}\n",
        (f"{FINCH}::test_a_round_sends_the_sub_space_and_nothing_else",),
    ),
    Fault(
        "B of Eq. 12 is the round's, not one transfer's.",
        "methods/finch_spaces.py",
        'return r.allowance["wan"] / over_wan',
        'return r.allowance["wan"]',
        (f"{FINCH}::test_eq_12_of_a_round",),
    ),
    Fault(
        "Transfers inside clusters are counted in one hop alone.",
        "methods/finch_spaces.py",
        "inside = 2 * r.hops * (members",
        "inside = 2 * (members",
        (f"{FINCH}::test_eq_12_of_a_round",),
    ),
    Fault(
        "Sub-spaces are drawn each round, whatever `resample` says.",
        "methods/finch_spaces.py",
        "return is_young and numbers == set(notes_in(state))",
        "return False",
        (f"{FINCH}::test_or_after_some_rounds",),
    ),
    Fault(
        "The worst candidate becomes the final network.",
        "stages/group_training.py",
        "best = max(range(len(archs)), key=lambda place: (figures[place] or 0.0, -place))",
        "best = min(range(len(archs)), key=lambda place: (figures[place] or 0.0, -place))",
        (f"{FINCH}::test_the_best_on_validation_is_stacked",),
    ),
    Fault(
        "Clusters bring no candidates of their own.",
        "methods/finch.py",
        "dict.fromkeys([merged, *groups])",
        "dict.fromkeys([merged])",
        (f"{FINCH}::test_each_cluster_brings_a_candidate_of_its_own_alpha",),
    ),
    Fault(
        "A client that is asked before its first work was never described, and is refused.",
        "federation/server/exchange.py",
        "for order in self.describe(orders)]",
        "for order in orders]",
        (f"{FINCH}::test_who_scores_before_its_first_work_is_described_first",),
    ),
    Fault(
        "What clients compute to answer a plan's questions is the server's work too, where one "
        "process does both.",
        "federation/server/planning.py",
        "macs = planning.macs - questions.macs",
        "macs = planning.macs",
        (f"{FINCH}::test_scores_of_clients_are_booked_as_evaluation",),
    ),
    Fault(
        "Pretraining does not end after its iterations.",
        "stages/group_pretraining.py",
        "        if remaining <= 0:\n            return None\n",
        "        remaining = max(1, remaining)\n",
        (f"{FINCH}::test_pretraining_ends_after_its_iterations",),
    ),
    Fault(
        "A method sees the tables of a checkpoint among its own tensors.",
        "federation/server/checkpoint.py",
        'state=State(without_reserved(saved.tensors), raw["meta"])',
        'state=State(saved.tensors, raw["meta"])',
        (CHECKPOINT,),
    ),
)

OWN_PATHS = "unit/export/test_own_paths.py"

# Exports of networks whose samples take their own paths.
PATHS = (
    Fault(
        "The most likely path is the one that the fewest samples take.",
        "export/paths.py",
        "most = max(counts.values())",
        "most = min(counts.values())",
        (OWN_PATHS,),
    ),
    Fault(
        "Of paths that are as common, the exported one is the last instead of the first.",
        "export/paths.py",
        "path = min(path for path",
        "path = max(path for path",
        (OWN_PATHS,),
    ),
    Fault(
        "The share of an exported path counts samples that have one operation of it.",
        "export/paths.py",
        "unchanged &= np.isin",
        "unchanged |= np.isin",
        (OWN_PATHS,),
    ),
    Fault(
        "The exported path is that of the training samples, not of the test samples.",
        "export/paths.py",
        "likely_path(paths_of(network, own.test)",
        "likely_path(paths_of(network, own.train)",
        (OWN_PATHS,),
    ),
    Fault(
        "The accuracy said of an exported path is that of the network with all paths.",
        "export/paths.py",
        "accuracy_of(written, own.test, task)",
        "accuracy_of(network, own.test, task)",
        (OWN_PATHS,),
    ),
    Fault(
        "Operations are pruned that no test sample takes, though training samples do.",
        "export/paths.py",
        "written = pruned(network, own.train)",
        "written = pruned(network, own.test)",
        (OWN_PATHS,),
    ),
    Fault(
        "Samplers of a pruned network may choose operations that are not there.",
        "export/paths.py",
        "    guide.leave_out_all_but(arch)\n",
        "",
        (OWN_PATHS,),
    ),
    Fault(
        "A network that leaves is not compared with the run's own.",
        "export/paths.py",
        "check_answers(network(batch), whole(batch))",
        "check_answers(whole(batch), whole(batch))",
        (OWN_PATHS,),
    ),
    Fault(
        "A norm is folded with another ε than its own.",
        "export/onnx.py",
        "norm.running_var.double() + norm.eps",
        "norm.running_var.double() + 1e-5",
        ("unit/export/test_onnx_norms.py",),
    ),
    Fault(
        "A model.onnx of another network stays beside a new export.",
        "export/bundle.py",
        "        (place / name).unlink(missing_ok=True)\n",
        "        pass\n",
        ("integration/test_exported_paths.py",),
    ),
    Fault(
        "An exported network may be bounded in its number of samples by how large a map is worth "
        "making again.",
        "nets/recomputed.py",
        "if not isinstance(elements, int):",
        "if False:",
        ("integration/test_exported_paths.py",),
    ),
)

PICTURES = "unit/data/readers/test_pictures.py"
FRONT_DOOR = (
    Fault(
        "Groups of files that are left are those of the first files.",
        "data/readers/pictures.py",
        "groups = groups[pictures.places]",
        "groups = groups[: len(pictures.places)]",
        (PICTURES,),
    ),
    Fault(
        "The first file that cannot be read is told alone.",
        "data/readers/pictures.py",
        "            bad.append(bad_file(file, error))\n            continue\n",
        "            raise BadFiles([bad_file(file, error)]) from None\n",
        (PICTURES,),
    ),
    Fault(
        "Images of other fits share a place in the cache.",
        "data/readers/pictures.py",
        "{rules.side} {rules.fit};",
        "{rules.side};",
        (PICTURES,),
    ),
    Fault(
        "Bytes among images of 16 bits are nearly black.",
        "data/readers/image_files.py",
        "image.astype(np.float32) * BYTE_TO_SHORT",
        "image.astype(np.float32)",
        (PICTURES,),
    ),
    Fault(
        "Images are cropped at their upper end.",
        "data/resizing.py",
        "top = (height - side) // 2",
        "top = 0",
        ("unit/data/test_resizing.py",),
    ),
    Fault(
        "An exported model pads images in bytes alone as the run did.",
        "export/template.py",
        "square += samples.amin((1, 2, 3), keepdim=True)",
        "pass",
        ("integration/test_resized.py",),
    ),
    Fault(
        "Grey images cannot be given to a model that was trained on colours.",
        "export/newdata.py",
        "colour=is_colour",
        "colour=False",
        ("integration/test_resized.py",),
    ),
    Fault(
        "The first recording that cannot be read is told alone.",
        "data/readers/recordings.py",
        "                bad[str(clip.file)] = bad_file(str(clip.file), error)\n"
        "                continue\n",
        "                raise BadFiles([bad_file(str(clip.file), error)]) from None\n",
        ("unit/data/readers/test_recordings.py",),
    ),
    Fault(
        "Speakers of recordings that are left are those of the first recordings.",
        "data/readers/recordings.py",
        "groups.astype(np.int64)[whole.places]",
        "groups.astype(np.int64)[: len(whole.places)]",
        ("unit/data/readers/test_recordings.py",),
    ),
    Fault(
        "A site's own size of images holds against the run's.",
        "deploy/site_data.py",
        "if size is None:",
        "if size is None or data.resize is not None:",
        ("unit/flower/test_site_data.py",),
    ),
    Fault(
        "Nobody hears that a site left files out.",
        "deploy/terms.py",
        "skipped=len(source.skipped),",
        "skipped=0,",
        ("unit/flower/test_site_data.py",),
    ),
    Fault(
        "Sites are mixed although nobody asked for it.",
        "data/configured.py",
        '{"site": "sites", "client": "natural"}',
        '{"client": "natural"}',
        ("unit/data/test_configured.py",),
    ),
    Fault(
        "A site's samples keep its own class numbers under the classes of all sites.",
        "data/labels.py",
        "return replace(source, y=y, labels=tuple(labels))",
        "return replace(source, labels=tuple(labels))",
        ("unit/flower/test_terms.py",),
    ),
    Fault(
        "A federation's run of an earlier version gets other classes.",
        "deploy/terms.py",
        "if joins_labels and site.kind",
        "if site.kind",
        ("unit/flower/test_terms.py",),
    ),
)

AUTO = (
    Fault(
        "A client's prior stays in the weights that it sends.",
        "learning/prior.py",
        "        hook.remove()\n",
        "        fold_shift(net, shift)\n",
        ("unit/test_prior.py",),
    ),
    Fault(
        "A client with a class that never came up gives it no chance at all.",
        "learning/prior.py",
        "HALF = 0.5",
        "HALF = 0.0",
        ("unit/test_prior.py",),
    ),
    Fault(
        "Sizes of a race get equally many rounds instead of equally many MACs.",
        "methods/auto.py",
        'work[size] += samples * state.meta["cost"][size]',
        "work[size] += samples",
        ("unit/methods/test_auto.py",),
    ),
    Fault(
        "The worse half of a race goes on.",
        "methods/auto.py",
        "(at_the_end[size], float(size)))[:survivors]",
        "(-at_the_end[size], float(size)))[:survivors]",
        ("unit/methods/test_auto.py",),
    ),
    Fault(
        "A change that the network does not bear is trained with.",
        "stages/phases.py",
        "has_learnt and counts[change] >= least",
        "counts[change] >= 0",
        ("unit/methods/test_auto.py",),
    ),
    Fault(
        "A trial of fine-tuning is won by chance.",
        "learning/judging.py",
        "up - down > deviations * sqrt(up + down)",
        "up > down",
        ("unit/test_judging.py",),
    ),
    Fault(
        "A loss that rises alone ends training.",
        "searchers/plateau.py",
        "not loss_falls and not accuracy_rises",
        "not loss_falls",
        ("unit/searchers/test_plateau.py",),
    ),
    Fault(
        "Training after a plateau goes on to the end of its budget.",
        "stages/phases.py",
        "return min(end, r.spent * (1 + COOLING))",
        "return end",
        ("unit/methods/test_auto.py",),
    ),
    Fault(
        "Networks are judged on samples that they were trained on.",
        "learning/judging.py",
        "return Parts(*data.split(1 - share))",
        "return Parts(data, data.split(1 - share)[1])",
        ("unit/test_judging.py",),
    ),
)

FAULTS = (
    *FIRST,
    *FURTHER,
    *SUBTLE,
    *GUARDS,
    *SPACES,
    *SUPERNETS,
    *CHAINS,
    *FEDORAS,
    *PARTS,
    *TEXT,
    *DEVICES,
    *TIERS,
    *SEARCHES,
    *WIDTHS,
    *SPEED,
    *EVIDENCE,
    *HONEST,
    *LABELS,
    *BY_THE_CLOCK,
    *CLUSTERS,
    *SUB_SPACES,
    *PATHS,
    *FRONT_DOOR,
    *AUTO,
)
